"""The published document, put to the server by schemathesis: what it says is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from openjet_provider.engine import Engine
from openjet_provider.server.openapi import OPERATIONS
from tests.server.conftest import live

schemathesis = pytest.importorskip("schemathesis")
openapi_checks = pytest.importorskip("schemathesis.specs.openapi.checks")

# A schema cannot say every rule ("send `prompt` or `messages`"), and what is harmless is taken
# though a schema would not have it (a number as text).
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.unsupported_method,
]


@pytest.fixture(scope="module")
def document(engine: Engine) -> Iterator[Any]:
    """The document of a running server."""
    with live(engine, request_timeout=5) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(
    ("path", "method"),
    [(op.path, op.method) for op in OPERATIONS if op.path != "/v1/stats/stream"],  # does not end
)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_server_does_what_its_document_says(
    document: Any, path: str, method: str, data: st.DataObject
) -> None:
    mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
    operation = document[path][method.upper()]
    assume(mode is schemathesis.GenerationMode.POSITIVE or operation.body or "{" in path)
    case = data.draw(operation.as_strategy(generation_mode=mode))
    case.call_and_validate(checks=CHECKS, timeout=60)
