"""Engine handles of the adapters: opened once, shared, given back."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from openjet_provider.errors import EngineClosedError, InvalidRequestError
from openjet_provider.handles import Handles


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
