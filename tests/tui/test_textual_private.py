"""What the cockpit uses of other libraries' private parts is still there, and still used by them.

One that fails names the hook. Look at what Textual does now in its place, then at what the hook is
for (albor_tui/terminal/textual_private.py), before the bound on Textual's version is moved.
"""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest

from albor_tui.terminal.textual_private import HOOKS, Hook


def own_tree(kind: type) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(kind)))


def is_own(node: ast.AST, name: str) -> bool:
    """Whether a node is `self.<name>` or `<something>.<name>`."""
    return isinstance(node, ast.Attribute) and node.attr == name


def sets(kind: type, name: str) -> bool:
    """Whether a class gives the name a value, in its body or in a method."""
    for node in ast.walk(own_tree(kind)):
        if is_own(node, name) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            return True
    return False


def uses(kind: type, name: str) -> bool:
    """Whether a class, or one that it is made from, reads the name anywhere."""
    homes = [home for home in kind.__mro__ if home.__module__.startswith("textual.")]
    return any(
        is_own(node, name) and isinstance(node.ctx, ast.Load)
        for home in homes
        for node in ast.walk(own_tree(home))
    )


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: f"{hook.owner.__name__}.{hook.name}")
def test_textual_still_has_what_the_cockpit_takes_hold_of(hook: Hook):
    what = f"{hook.owner.__module__}.{hook.owner.__name__}.{hook.name}"
    if hook.signature:
        function = getattr(hook.owner, hook.name, None)
        assert callable(function), f"Textual has no function {what} any more"
        signature = inspect.signature(inspect.unwrap(function)).replace(
            return_annotation=inspect.Signature.empty
        )
        assert str(signature) == hook.signature, f"Textual calls {what} otherwise now"
    else:
        homes = [home for home in hook.owner.__mro__ if home.__module__.startswith("textual.")]
        assert any(sets(home, hook.name) for home in homes), f"Textual sets no {what} any more"
    user = f"{hook.used_by.__module__}.{hook.used_by.__name__}"
    assert uses(hook.used_by, hook.name), f"{user} does not use {what} any more: nothing obeys it"


def test_every_private_name_in_the_module_is_a_hook_that_is_watched():
    """Of names that begin with one underscore and are not this module's own."""
    from albor_tui.terminal import textual_private

    tree = ast.parse(inspect.getsource(textual_private))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    ours = {"_changed", "_used", "_use"}
    private = {name for name in used if name.startswith("_") and not name.startswith("__")}
    assert private - ours <= {hook.name for hook in HOOKS}


def test_nothing_else_in_the_cockpit_reaches_into_another_librarys_class(private_uses):
    """web.py overrides methods of textual-serve's, an optional package: see the next test."""
    names = ("_build_environment", "_make_app", "_process", "_process_messages")
    allowed = {("web.py", name) for name in names}
    allowed |= {(path, name) for path, name in private_uses if name == "_exit"}  # os._exit
    allowed.add(("widgets/chart_grid/key_search.py", "_parser"))  # re's own, since Python 3.11
    found = {use for use in private_uses if use[0] != "terminal/textual_private.py"}
    assert found <= allowed, "give it a public name in albor_tui/terminal/textual_private.py"


@pytest.fixture(scope="module")
def private_uses() -> set[tuple[str, str]]:
    """(file, name) for each underscore name of Textual's, Rich's or an outer module's in use."""
    from pathlib import Path

    import textual.app
    import textual.scroll_view

    import albor_tui

    theirs: set[str] = set()
    for kind in (
        textual.app.App,
        textual.scroll_view.ScrollView,
        *(hook.owner for hook in HOOKS),
    ):
        for home in kind.__mro__:
            theirs |= {name for name in vars(home) if name.startswith("_")}
    package = Path(albor_tui.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        ours = {node.name for node in ast.walk(tree) if hasattr(node, "name")}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            owner, is_dunder = ast.unparse(node.value), node.attr.startswith("__")
            is_foreign = owner not in ("self", "cls") or (node.attr in theirs - ours)
            if is_foreign and not is_dunder:
                found.add((path.relative_to(package).as_posix(), node.attr))
    return found


def test_textual_serve_still_has_the_methods_that_the_web_cockpit_overrides():
    server = pytest.importorskip("textual_serve.server", reason="the extra `web` is not installed")
    from textual_serve.app_service import AppService

    environment = inspect.signature(AppService._build_environment)
    assert list(environment.parameters) == ["self", "width", "height"], "_build_environment"
    assert sets(AppService, "_process"), "textual-serve sets no AppService._process any more"
    assert inspect.iscoroutinefunction(server.Server._make_app), "Server._make_app"
    messages = server.Server._process_messages
    assert inspect.iscoroutinefunction(messages), "Server._process_messages"
    takes = [*inspect.signature(messages).parameters]
    assert takes == ["self", "websocket", "app_service"], "Server._process_messages"
    assert "AppService(" in inspect.getsource(server), "the server makes no AppService of its own"
