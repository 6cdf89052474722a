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

struct Stream {
    // The ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
    int ring_at, ring_bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // blocks issued and not yet released
    // What is issued next.
    Schedule schedule;
    int entry;  // of the schedule; at n_entries everything is issued
    int warp, n_warps;
    Unit unit, end;
    const uint8_t* from;
    int block_bytes, left;  // of the unit that is being issued
};

// Goes to the next unit that has packed weights; false when there is none.
OJ_DEVICE bool advance(Stream& s) {
    while (s.entry < s.schedule.n_entries) {
        if (s.entry < 0 || same_unit(s.unit, s.end)) {
            if (++s.entry >= s.schedule.n_entries) return false;
            const Phase& p = s.schedule.phases[s.schedule.sequence[s.entry].phase];
            s.unit = s.end = {0, 0, 0};
            if (p.kind == PhaseKind::multiply) {
                UnitRange range = warp_units(p, s.warp, s.n_warps);
                s.unit = range.first;
                s.end = range.end;
            }
            continue;
        }
        const Phase& p = s.schedule.phases[s.schedule.sequence[s.entry].phase];
        Unit unit = s.unit;
        s.unit = next_unit(p, unit);
        const Matrix& m = p.matrices[unit.matrix];
        const TileFormat f = tile_format(static_cast<BlockType>(m.type));
        if (f.code_bits == 0) continue;  // float rows are read where they are
        s.from = m.data + unit_offset(m, unit);
        s.left = static_cast<int>(unit_bytes(m, unit));
        s.block_bytes = block_bytes(f, block_steps);
        return true;
    }
    return false;
}

// Issues blocks while they fit.
OJ_DEVICE void fill(Stream& s) {
    while (s.in_flight < most_in_flight) {
        if (s.left == 0 && !advance(s)) return;
        int bytes = s.left < s.block_bytes ? s.left : s.block_bytes;
        if (s.in_flight == 0) s.write_at = s.read_at = s.used = 0;
        bool wraps = s.write_at + bytes > s.ring_bytes;
        int skipped = wraps ? s.ring_bytes - s.write_at : 0;
        if (s.used + skipped + bytes > s.ring_bytes) return;
        if (wraps) s.write_at = 0;
        uint8_t* to = shared_memory() + s.ring_at + s.write_at;
        for (int at = lane_index() * 16; at < bytes; at += warp_lanes * 16)
            copy_async(to + at, s.from + at);
        copy_commit();
        ++s.in_flight;
        s.used += skipped + bytes;
        s.write_at += bytes;
        s.from += bytes;
        s.left -= bytes;
    }
}

// ring_bytes of shared memory from ring_at on are all warps' rings; a warp's share holds at least
// one block (largest_block_bytes).
OJ_DEVICE Stream open_stream(const Schedule& schedule, const Grid& grid, int ring_at,
                             int ring_bytes) {
    Stream s = {};
    s.ring_bytes = ring_bytes / block_warps / 16 * 16;
    s.ring_at = ring_at + warp_index() * s.ring_bytes;
    s.schedule = schedule;
    s.entry = -1;
    s.warp = grid.block * block_warps + warp_index();
    s.n_warps = grid.n_blocks * block_warps;
    fill(s);
    return s;
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
    fill(s);
}

}  // namespace oj::cuda
