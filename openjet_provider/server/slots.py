"""/slots, as users of llama-server know it: what each slot holds; save, restore and erase. What is
done to a slot is done to the conversation in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.server.errors import ApiError, refused, unavailable
from openjet_provider.server.http import json_response, read_body
from openjet_provider.server.schemas import SlotBody
from openjet_provider.server.service import Service
from openjet_provider.server.slot_table import SLOT_ACTIONS, Slot


async def slots(request: Request) -> Response:
    """GET /slots. With fail_on_no_slot, 503 while all of them are busy."""
    service: Service = request.app.state.service
    engine = service.engine
    all_slots = service.slots.of(engine.agents)
    if request.query_params.get("fail_on_no_slot") and all(slot.running for slot in all_slots):
        raise unavailable("no slot is idle", "no_slot_available")
    return json_response([slot.describe(engine.context, engine.drafts) for slot in all_slots])


async def act(request: Request) -> Response:
    """POST /slots/{id}?action=save|restore|erase."""
    service: Service = request.app.state.service
    engine = service.engine
    slot = _slot(request.path_params["id"], service.slots.of(engine.agents))
    action = request.query_params.get("action", "")
    if action not in SLOT_ACTIONS:
        raise refused(f"action={action!r} is unknown: use {', '.join(SLOT_ACTIONS)}", "action")
    started = time.monotonic()
    if action == "erase":
        async with service.slots.changing:
            tokens = slot.history()
            n_erased = await asyncio.to_thread(engine.erase, tokens)
        if slot.running is None and slot.tokens is tokens:
            service.slots.fill(slot, ())
        return json_response({"id_slot": slot.id, "n_erased": n_erased})
    if engine.state_dir is None:
        raise ApiError(
            501,
            "this server saves no slots; start it with --state-dir DIR",
            type="not_supported_error",
        )
    filename = (await read_body(request, SlotBody, service.settings)).filename
    async with service.slots.changing:
        if action == "save":
            saved = await asyncio.to_thread(engine.save, slot.history(), filename)
            counts = {"n_saved": len(saved.tokens), "n_written": saved.n_bytes}
        else:
            if slot.running is not None:
                raise ApiError(409, f"slot {slot.id} is busy; restore into an idle one")
            saved = await asyncio.to_thread(engine.restore, filename)
            service.slots.fill(slot, saved.tokens)
            counts = {"n_restored": len(saved.tokens), "n_read": saved.n_bytes}
    timings = {f"{action}_ms": round((time.monotonic() - started) * 1000, 3)}
    return json_response({"id_slot": slot.id, "filename": filename, **counts, "timings": timings})


def _slot(text: str, all_slots: Sequence[Slot]) -> Slot:
    for slot in all_slots:
        if text == str(slot.id):
            return slot
    raise refused(f"id: there is no slot {text!r}; they are 0 to {len(all_slots) - 1}", "id")
