"""python -m albor_core.store.index RUN_DIR: the index process of one run."""

import sys

from albor_core.store.index.indexer import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
