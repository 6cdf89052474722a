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
    int left, piece_bytes;
};

// Blocks that are copied and taken together: two of super groups, whose blocks are whole, where
// three such pieces fit into a warp's ring.
OJ_HD constexpr int blocks_of_piece(TileFormat f, int ring_bytes) {
    return f.group == super_group && 6 * block_bytes(f, block_steps) <= ring_bytes ? 2 : 1;
}

// A warp's ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
// Every lane has the same values, in registers while it multiplies.
struct Ring {
    int at, bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // pieces issued and not yet released
    Stretch current, next;  // what is issued next; then what look_ahead() finds
};

// A warp's stream, in shared memory: what lane 0 writes, all lanes read.
struct Stream {
    Ring ring;  // while nothing is multiplied
    Schedule schedule;
    int warp, n_warps;
    int found_entry;           // of the schedule: where look_ahead() is
    UnitRange found, to_find;  // this warp's units there, and those that it has not come to
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
            keep(s.found, units);
            continue;
        }
        const Phase& p = phase_of(s.schedule, entry);
        const Unit unit = units.first;
        units.first = next_unit(p, unit);
        const Matrix& m = p.matrices[unit.matrix];
        const TileFormat f = tile_format(static_cast<BlockType>(m.type));
        if (f.code_bits == 0) continue;  // float rows are read where they are
        next = {m.data + unit_offset(m, unit), static_cast<int>(unit_bytes(m, unit)),
                block_bytes(f, block_steps) * blocks_of_piece(f, s.ring.bytes)};
        found = true;
    }
    keep(s.found_entry, entry);
    keep(s.to_find, units);
    return found;
}

// Copies a piece by the whole warp. Lanes without work in the last copies are masked, not branched
// around: this is in the loop over pieces.
OJ_DEVICE void copy_piece(uint8_t* to, const uint8_t* from, int bytes) {
    constexpr int at_once = warp_lanes * 16;
    to += lane_index() * 16;
    from += lane_index() * 16;
    OJ_UNROLL(1)
    for (; bytes >= 4 * at_once; bytes -= 4 * at_once) {
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i)
            copy_async(to + i * at_once, from + i * at_once);
        to += 4 * at_once;
        from += 4 * at_once;
    }
    const int mine = bytes - lane_index() * 16;
    OJ_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
        if (i * at_once < mine) copy_async(to + i * at_once, from + i * at_once);
    }
    copy_commit();
}

// Issues the next piece of the two stretches if it fits.
OJ_DEVICE bool issue_piece(Ring& r) {
    if (r.in_flight >= most_in_flight) return false;
    if (r.current.left == 0) {
        if (r.next.left == 0) return false;
        r.current = r.next;
        r.next.left = 0;
    }
    int bytes = r.current.left < r.current.piece_bytes ? r.current.left : r.current.piece_bytes;
    if (r.in_flight == 0) r.write_at = r.read_at = r.used = 0;
    bool wraps = r.write_at + bytes > r.bytes;
    int skipped = wraps ? r.bytes - r.write_at : 0;
    if (r.used + skipped + bytes > r.bytes) return false;
    if (wraps) r.write_at = 0;
    copy_piece(shared_memory() + r.at + r.write_at, r.current.from, bytes);
    ++r.in_flight;
    r.used += skipped + bytes;
    r.write_at += bytes;
    r.current.from += bytes;
    r.current.left -= bytes;
    return true;
}

// Fills the ring and has a stretch ready behind it: called at every unit, so that release() need
// not look ahead.
OJ_DEVICE void fill(Stream& s, Ring& r) {
    do {
        while (issue_piece(r)) {
        }
    } while (r.next.left == 0 && look_ahead(s, r.next));
}

// ring_bytes (smallest_ring_bytes or more) of shared memory from ring_at on are all warps' rings.
// Each warp has a Stream of its own.
OJ_PHASE void open_stream(const Schedule& schedule, const Grid& grid, int ring_at, int ring_bytes,
                          Stream& stream) {
    Stream s = {};
    s.schedule = schedule;
    s.warp = grid.block * block_warps + warp_index();
    s.n_warps = grid.n_blocks * block_warps;
    s.to_take = find_units(s, s.entry);
    s.found_entry = s.entry;
    s.found = s.to_find = s.to_take;
    s.ring.bytes = ring_bytes / block_warps / 16 * 16;
    s.ring.at = ring_at + warp_index() * s.ring.bytes;
    keep(stream, s);
    Ring r = s.ring;
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
OJ_PHASE void next_multiply(Stream& s) {
    int entry = s.entry + 1;
    const bool is_found = entry < s.schedule.n_entries &&
                          entry + s.schedule.sequence[entry].next_multiply == s.found_entry;
    if (is_found) entry = s.found_entry;
    UnitRange units = is_found ? s.found : find_units(s, entry);
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

// The oldest piece, of `bytes`; valid for the whole warp until release().
OJ_DEVICE const uint8_t* take_piece(Ring& r, int bytes) {
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
    issue_piece(r);
}

}  // namespace oj::cuda
