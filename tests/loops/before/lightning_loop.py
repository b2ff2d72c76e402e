"""Lightning: an autoencoder of noise on a plane, after the library's first example."""

import lightning
import torch
from torch import nn

lightning.seed_everything(0, verbose=False)
torch.set_num_threads(1)


class Autoencoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8))

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        print(f"step {self.global_step} loss {self.trainer.callback_metrics['train_loss']:.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


data = torch.randn(256, 2) @ torch.randn(2, 8)
trainer = lightning.Trainer(
    max_epochs=5,
    accelerator="cpu",
    log_every_n_steps=1,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    logger=False,
)
trainer.fit(Autoencoder(), torch.utils.data.DataLoader(data, batch_size=32))
