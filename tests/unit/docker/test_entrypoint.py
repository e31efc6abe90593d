"""``docker/entrypoint.py``: what the environment says is what the server reads."""

import importlib.util
from pathlib import Path

from ledgermq.runtime.config import load_properties

SCRIPT = Path(__file__).parents[3] / "docker" / "entrypoint.py"


def test_a_value_arrives_as_it_is_and_is_no_other_setting(tmp_path):
    spec = importlib.util.spec_from_file_location("entrypoint", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    entrypoint = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(entrypoint)
    given = {
        "LEDGERMQ_peerSharedKey": "a key that ends with one\\",
        "LEDGERMQ_regionId": "C:\\x\\u0041=#!",
        "LEDGERMQ_traceOn": "true\nlistenPort=1",
        "LEDGERMQ_namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
    }
    config = tmp_path / "server.conf"
    entrypoint.write_config(config, entrypoint.settings({**given, "PATH": "/bin"}, "namesrv"))
    expected = {name.removeprefix("LEDGERMQ_"): value for name, value in given.items()}
    assert load_properties(str(config)) == {**expected, "bindAddress": "0.0.0.0"}
