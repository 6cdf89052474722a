// The weights of a step, streamed once: each warp copies the blocks of its units (partition.h) into
// its own ring in shared memory, as far ahead as the ring reaches and across phases, so that DRAM
// does not idle while the blocks of the grid meet. The same warp consumes them in the same order;
// no other warp is waited for.
#pragma once

#include "cuda/partition.h"
#include "cuda/ptx.h"
#include "cuda/tile.h"

namespace oj::cuda {

constexpr int most_in_flight = 8;

// Packed weights of a unit that are not issued yet.
struct Stretch {
    const uint8_t* from;
    int left, block_bytes;
};

// Uniform in a warp. Between multiply phases it is kept in shared memory (keep_stream()), so that
// other phases have the registers.
struct Stream {
    // The ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
    int ring_at, ring_bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // blocks issued and not yet released
    Stretch current, next;  // what is issued next; then what look_ahead() finds
    Schedule schedule;
    int warp, n_warps;
    int found_entry;  // of the schedule: where look_ahead() is
    UnitRange to_find;
    int entry;  // the multiply phase whose units are taken next, or is being worked on
    UnitRange to_take;
};

OJ_DEVICE const Phase& phase_of(const Stream& s, int entry) {
    return s.schedule.phases[s.schedule.sequence[entry].phase];
}

// The first multiply phase of the schedule from `entry` on, and this warp's units of it.
OJ_DEVICE UnitRange find_units(const Stream& s, int& entry) {
    for (; entry < s.schedule.n_entries; ++entry) {
        const Phase& p = phase_of(s, entry);
        if (p.kind == PhaseKind::multiply) return warp_units(p, s.warp, s.n_warps);
    }
    return {};
}

// Finds the stretch after the next one; false when there is none.
OJ_DEVICE bool look_ahead(Stream& s) {
    while (s.found_entry < s.schedule.n_entries) {
        if (same_unit(s.to_find.first, s.to_find.end)) {
            s.to_find = find_units(s, ++s.found_entry);
            continue;
        }
        const Phase& p = phase_of(s, s.found_entry);
        Unit unit = s.to_find.first;
        s.to_find.first = next_unit(p, unit);
        const Matrix& m = p.matrices[unit.matrix];
        const TileFormat f = tile_format(static_cast<BlockType>(m.type));
        if (f.code_bits == 0) continue;  // float rows are read where they are
        s.next = {m.data + unit_offset(m, unit), static_cast<int>(unit_bytes(m, unit)),
                  block_bytes(f, block_steps)};
        return true;
    }
    return false;
}

// Issues blocks of the two stretches while they fit.
OJ_DEVICE void issue(Stream& s) {
    while (s.in_flight < most_in_flight) {
        if (s.current.left == 0) {
            if (s.next.left == 0) return;
            s.current = s.next;
            s.next.left = 0;
        }
        int bytes = s.current.left < s.current.block_bytes ? s.current.left : s.current.block_bytes;
        if (s.in_flight == 0) s.write_at = s.read_at = s.used = 0;
        bool wraps = s.write_at + bytes > s.ring_bytes;
        int skipped = wraps ? s.ring_bytes - s.write_at : 0;
        if (s.used + skipped + bytes > s.ring_bytes) return;
        if (wraps) s.write_at = 0;
        uint8_t* to = shared_memory() + s.ring_at + s.write_at;
        for (int at = lane_index() * 16; at < bytes; at += warp_lanes * 16)
            copy_async_once(to + at, s.current.from + at);
        copy_commit();
        ++s.in_flight;
        s.used += skipped + bytes;
        s.write_at += bytes;
        s.current.from += bytes;
        s.current.left -= bytes;
    }
}

// Fills the ring and has a stretch ready behind it: called at every unit, so that release() need
// not look ahead.
OJ_DEVICE void fill(Stream& s) {
    do {
        issue(s);
    } while (s.next.left == 0 && look_ahead(s));
}

// Into shared memory that is the warp's own.
OJ_DEVICE void keep_stream(const Stream& s, Stream& kept) {
    warp_sync();
    if (lane_index() == 0) kept = s;
    warp_sync();
}

// ring_bytes of shared memory from ring_at on are all warps' rings; a warp's share holds at least
// one block (largest_block_bytes).
OJ_DEVICE void open_stream(const Schedule& schedule, const Grid& grid, int ring_at, int ring_bytes,
                           Stream& kept) {
    Stream s = {};
    s.ring_bytes = ring_bytes / block_warps / 16 * 16;
    s.ring_at = ring_at + warp_index() * s.ring_bytes;
    s.schedule = schedule;
    s.warp = grid.block * block_warps + warp_index();
    s.n_warps = grid.n_blocks * block_warps;
    s.to_take = find_units(s, s.entry);
    s.found_entry = s.entry;
    s.to_find = s.to_take;
    fill(s);
    keep_stream(s, kept);
}

// To the next multiply phase, whose units are known before the grid's blocks meet.
OJ_DEVICE void end_phase(Stream& s) {
    s.to_take = find_units(s, ++s.entry);
}

// Waits for the oldest block: of the copies under way, all newer ones may still be.
OJ_DEVICE void wait_oldest(int in_flight) {
    static_assert(most_in_flight == 8);
    switch (in_flight) {
        case 1:
            return copy_wait<0>();
        case 2:
            return copy_wait<1>();
        case 3:
            return copy_wait<2>();
        case 4:
            return copy_wait<3>();
        case 5:
            return copy_wait<4>();
        case 6:
            return copy_wait<5>();
        case 7:
            return copy_wait<6>();
        default:
            return copy_wait<7>();
    }
}

// The oldest block, of `bytes`; valid for the whole warp until release().
OJ_DEVICE const uint8_t* take_block(Stream& s, int bytes) {
    wait_oldest(s.in_flight);
    warp_sync();
    if (s.read_at + bytes > s.ring_bytes) {
        s.used -= s.ring_bytes - s.read_at;
        s.read_at = 0;
    }
    return shared_memory() + s.ring_at + s.read_at;
}

OJ_DEVICE void release(Stream& s, int bytes) {
    warp_sync();
    s.read_at += bytes;
    s.used -= bytes;
    --s.in_flight;
    issue(s);
}

}  // namespace oj::cuda
