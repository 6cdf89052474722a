"""Engine handles of the adapters: opened once, shared, given back."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from openjet_provider.engine import Engine
from openjet_provider.errors import EngineClosedError, InvalidRequestError
from openjet_provider.handles import Handles
from tests.conftest import wait_for_dropped
from tests.integrations.conftest import script_options


def test_many_threads_open_one_engine(scripted):
    handles = Handles()
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(lambda _: handles.get("openjet-tiny", scripted), range(16)))
    assert len({id(engine) for engine in engines}) == 1
    handles.close()


async def test_opened_without_blocking_the_loop(scripted):
    handles = Handles()
    engine = await handles.aget("openjet-tiny", scripted)
    assert await handles.aget("openjet-tiny", scripted) is engine
    handles.close()


def test_a_closed_handle_is_opened_again(scripted):
    handles = Handles()
    engine = handles.get("openjet-tiny", scripted)
    handles.close()
    with pytest.raises(EngineClosedError):
        engine.stats()
    assert handles.get("openjet-tiny", scripted).stats().running == 0
    handles.close()


def test_other_options_for_an_open_model_are_an_error(scripted):
    handles = Handles()
    handles.get("openjet-tiny", scripted)
    with pytest.raises(InvalidRequestError, match="agents"):
        handles.get("openjet-tiny", {**scripted, "agents": 3})
    handles.close()


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(InvalidRequestError, match="agentz"):
        Handles().get("openjet-tiny", {"agentz": 3})


def test_copies_share_and_pickles_start_empty(scripted):
    handles = Handles()
    engine = handles.get("openjet-tiny", scripted)
    assert copy.deepcopy(handles).get("openjet-tiny", scripted) is engine
    assert pickle.loads(pickle.dumps(handles)) is not handles
    handles.close()


def test_the_last_one_dropped_releases_the_engine():
    """Seen from outside: the model may be opened with other options again."""
    options = script_options()
    handles = Handles()
    copied = copy.deepcopy(handles)
    handles.get("openjet-tiny", options)
    del handles
    wait_for_dropped()
    with pytest.raises(InvalidRequestError, match="already open"):
        Engine("openjet-tiny", **{**options, "agents": 3})
    del copied
    wait_for_dropped()
    with Engine("openjet-tiny", **{**options, "agents": 3}) as engine:
        assert engine.agents == 3


def test_dropped_inside_a_cycle_while_engines_open_and_close():
    """The collector runs anywhere, also inside the registry's lock: nothing may wait on itself."""
    options = script_options()
    for _ in range(5):
        handles = Handles()
        handles.get("openjet-tiny", options)
        cycle = [handles]
        cycle.append(cycle)
        del handles, cycle
        with Engine("openjet-tiny", **options):
            wait_for_dropped()


def test_handles_that_live_until_exit_end_quietly(root):
    program = (
        "from openjet_provider.handles import Handles\n"
        "kept = Handles()\n"
        "kept.get('openjet-tiny', {'backend': 'scripted'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
