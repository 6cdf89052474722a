// The weights of a step, streamed once: each warp copies the blocks of its units (partition.h) into
// its own ring in shared memory, as far ahead as the ring reaches and across phases, so that DRAM
// does not idle while the blocks of the grid meet. The same warp consumes them in the same order;
// no other warp is waited for.
#pragma once

#include "cuda/partition.h"
#include "cuda/ptx.h"
#include "cuda/tile.h"

namespace oj::cuda {

constexpr int most_in_flight = 12;

// What the rings of a block need at least: a block of weights a warp.
constexpr int smallest_ring_bytes = block_warps * largest_block_bytes;

// Packed weights of a unit that are not issued yet.
struct Stretch {
    const uint8_t* from;
    int left, block_bytes;
};

// A warp's ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
// Every lane has the same values, in registers while it multiplies.
struct Ring {
    int at, bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // blocks issued and not yet released
    Stretch current, next;  // what is issued next; then what look_ahead() finds
};

// A warp's stream, in shared memory: what lane 0 writes, all lanes read.
struct Stream {
    Ring ring;  // while nothing is multiplied
    Schedule schedule;
    int warp, n_warps;
    int found_entry;  // of the schedule: where look_ahead() is
    UnitRange to_find;
    int entry;  // the multiply phase whose units are taken next, or is being worked on
    UnitRange to_take;
};

OJ_DEVICE const Phase& phase_of(const Schedule& schedule, int entry) {
    return schedule.phases[schedule.sequence[entry].phase];
}

// The first multiply phase of the schedule from `entry` on, and this warp's units of it.
OJ_DEVICE UnitRange find_units(const Stream& s, int& entry) {
    if (entry < s.schedule.n_entries) entry += s.schedule.sequence[entry].next_multiply;
    if (entry >= s.schedule.n_entries) return {};
    return warp_units(phase_of(s.schedule, entry), s.warp, s.n_warps);
}

// Finds the stretch after the next one; false when there is none.
OJ_DEVICE bool look_ahead(Stream& s, Stretch& next) {
    int entry = s.found_entry;
    UnitRange units = s.to_find;
    bool found = false;
    while (!found && entry < s.schedule.n_entries) {
        if (same_unit(units.first, units.end)) {
            units = find_units(s, ++entry);
            continue;
        }
        const Phase& p = phase_of(s.schedule, entry);
        const Unit unit = units.first;
        units.first = next_unit(p, unit);
        const Matrix& m = p.matrices[unit.matrix];
        const TileFormat f = tile_format(static_cast<BlockType>(m.type));
        if (f.code_bits == 0) continue;  // float rows are read where they are
        next = {m.data + unit_offset(m, unit), static_cast<int>(unit_bytes(m, unit)),
                block_bytes(f, block_steps)};
        found = true;
    }
    keep(s.found_entry, entry);
    keep(s.to_find, units);
    return found;
}

// Issues blocks of the two stretches while they fit.
OJ_DEVICE void issue(Ring& r) {
    while (r.in_flight < most_in_flight) {
        if (r.current.left == 0) {
            if (r.next.left == 0) return;
            r.current = r.next;
            r.next.left = 0;
        }
        int bytes = r.current.left < r.current.block_bytes ? r.current.left : r.current.block_bytes;
        if (r.in_flight == 0) r.write_at = r.read_at = r.used = 0;
        bool wraps = r.write_at + bytes > r.bytes;
        int skipped = wraps ? r.bytes - r.write_at : 0;
        if (r.used + skipped + bytes > r.bytes) return;
        if (wraps) r.write_at = 0;
        uint8_t* to = shared_memory() + r.at + r.write_at;
        for (int at = lane_index() * 16; at < bytes; at += warp_lanes * 16)
            copy_async_once(to + at, r.current.from + at);
        copy_commit();
        ++r.in_flight;
        r.used += skipped + bytes;
        r.write_at += bytes;
        r.current.from += bytes;
        r.current.left -= bytes;
    }
}

// Fills the ring and has a stretch ready behind it: called at every unit, so that release() need
// not look ahead.
OJ_DEVICE void fill(Stream& s, Ring& r) {
    do {
        issue(r);
    } while (r.next.left == 0 && look_ahead(s, r.next));
}

// ring_bytes (smallest_ring_bytes or more) of shared memory from ring_at on are all warps' rings.
// Each warp has a Stream of its own.
OJ_DEVICE void open_stream(const Schedule& schedule, const Grid& grid, int ring_at, int ring_bytes,
                           Stream& stream) {
    Stream s = {};
    s.schedule = schedule;
    s.warp = grid.block * block_warps + warp_index();
    s.n_warps = grid.n_blocks * block_warps;
    s.to_take = find_units(s, s.entry);
    s.found_entry = s.entry;
    s.to_find = s.to_take;
    keep(stream, s);
    Ring r = {};
    r.bytes = ring_bytes / block_warps / 16 * 16;
    r.at = ring_at + warp_index() * r.bytes;
    fill(stream, r);
    keep(stream.ring, r);
}

// The next of this warp's units of the phase; false behind the last one.
OJ_DEVICE bool take_unit(Stream& s, const Phase& p, Unit& unit) {
    unit = s.to_take.first;
    if (same_unit(unit, s.to_take.end)) return false;
    keep(s.to_take.first, next_unit(p, unit));
    return true;
}

// Behind a multiply phase: to the next one, with the ring as full as it gets. Nothing here depends
// on other blocks, so it is done while they are waited for.
OJ_DEVICE void next_multiply(Stream& s) {
    int entry = s.entry + 1;
    UnitRange units = find_units(s, entry);
    keep(s.entry, entry);
    keep(s.to_take, units);
    Ring r = s.ring;
    fill(s, r);
    keep(s.ring, r);
}

// Waits until at most `left` copies, between `fewest` and `most`, are under way: the instruction
// wants a constant.
template <int fewest, int most>
OJ_DEVICE void wait_until_left(int left) {
    if constexpr (fewest == most) {
        copy_wait<fewest>();
    } else {
        constexpr int middle = (fewest + most + 1) / 2;
        if (left >= middle) return wait_until_left<middle, most>(left);
        wait_until_left<fewest, middle - 1>(left);
    }
}

// The oldest block, of `bytes`; valid for the whole warp until release().
OJ_DEVICE const uint8_t* take_block(Ring& r, int bytes) {
    wait_until_left<0, most_in_flight - 1>(r.in_flight - 1);
    warp_sync();
    if (r.read_at + bytes > r.bytes) {
        r.used -= r.bytes - r.read_at;
        r.read_at = 0;
    }
    return shared_memory() + r.at + r.read_at;
}

OJ_DEVICE void release(Ring& r, int bytes) {
    warp_sync();
    r.read_at += bytes;
    r.used -= bytes;
    --r.in_flight;
    issue(r);
}

}  // namespace oj::cuda
