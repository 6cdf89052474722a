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

// What the rings of a block need at least: a block of weights a warp.
constexpr int smallest_ring_bytes = block_warps * largest_block_bytes;

// Packed weights of a bundle of units that are not issued yet. Pieces of two tiles have two halves,
// which lie apart.
struct Stretch {
    const uint8_t* from;
    int left;         // bytes
    int piece_bytes;  // the last piece may have less
    uint32_t gap;     // from the end of a piece's first half to its second one

    // From a piece to the next one.
    OJ_HD uint32_t step(int piece) const { return gap == 0 ? piece : piece / 2; }
};

// What common files have: more variants of these products are compiled.
OJ_HD constexpr bool is_common(BlockType type) {
    return type == BlockType::Q4_K || type == BlockType::Q6_K;
}

// Tiles that a warp multiplies together: two where there are registers for their sums, and two
// pieces of a block of each fit into the warp's ring.
OJ_HD constexpr int tiles_together(BlockType type, int n_rows, int ring_bytes) {
    const int blocks = 4 * block_bytes(tile_format(type), block_steps);
    return is_common(type) && n_rows <= 2 * column_rows && blocks <= ring_bytes ? 2 : 1;
}

// Blocks of one tile that are copied and taken together: two of super groups, whose blocks are
// whole, where three such pieces fit into a warp's ring.
OJ_HD constexpr int blocks_of_piece(TileFormat f, int ring_bytes) {
    return f.group == super_group && 6 * block_bytes(f, block_steps) <= ring_bytes ? 2 : 1;
}

OJ_DEVICE Stretch stretch_of(const Matrix& m, const Bundle& bundle, int ring_bytes) {
    const TileFormat f = tile_format(static_cast<BlockType>(m.type));
    const uint8_t* from = m.data + unit_offset(m, bundle.first);
    const int bytes = static_cast<int>(unit_bytes(m, bundle.first));
    const int block = block_bytes(f, block_steps);
    if (bundle.tiles == 2)
        return {from, 2 * bytes, 2 * block, static_cast<uint32_t>(m.tile_bytes - block)};
    return {from, bytes, block * blocks_of_piece(f, ring_bytes), 0};
}

// A warp's ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
// Every lane has the same values, in registers while it multiplies.
struct Ring {
    int at, bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // pieces issued and not yet released
    int next_at;            // Stream.next in shared memory
    Stretch current;        // what is issued next
};

// A multiply phase, or a part of one, and this warp's units of it.
struct Turn {
    Multiply what;
    UnitRange units;
};

// A warp's stream, in shared memory: what lane 0 writes, all lanes read.
struct Stream {
    Ring ring;     // while nothing is multiplied
    Stretch next;  // what is issued behind the ring's: what look_ahead() finds
    const Schedule* schedule;
    int at, found_at;  // indices into Schedule.multiplies: of `now` and of `found`
    Turn now;          // what is taken next or being worked on: the units that are not yet taken
    Turn found;        // where look_ahead() is,
    Unit to_find;      // the first unit of that to which it has not come
};

// This warp's turn at a multiply phase of the step; without units behind the last one.
OJ_DEVICE Turn turn_at(const Stream& s, int index) {
    const Schedule& schedule = *s.schedule;
    if (index >= schedule.n_multiplies) return {};
    const int n_warps = block_count() * block_warps;
    const int warp = block_index() * block_warps + warp_index();
    const Multiply what = in_global(schedule.multiplies)[index];
    const Unit* first = in_global(schedule.first_units) + what.units * (n_warps + 1) + warp;
    return {what, {first[0], first[1]}};
}

// The one rule by which weights are streamed and taken: the next units of a turn, off `units`.
OJ_DEVICE Bundle next_bundle(const Ring& r, const Multiply& what, const Phase& p,
                             UnitRange& units) {
    const auto type = static_cast<BlockType>(p.matrices[units.first.matrix].type);
    return take_bundle(p, units, tiles_together(type, what.n_rows, r.bytes));
}

// Finds the stretch after the next one; false when there is none.
OJ_DEVICE bool look_ahead(Stream& s) {
    UnitRange units = {s.to_find, s.found.units.end};
    bool found = false;
    while (!found && s.found_at < s.schedule->n_multiplies) {
        if (same_unit(units.first, units.end)) {
            const int next = s.found_at + 1;
            const Turn turn = turn_at(s, next);
            keep(s.found_at, next);
            keep(s.found, turn);
            units = turn.units;
            continue;
        }
        const Phase& p = in_global(s.schedule->phases)[s.found.what.phase];
        const Bundle bundle = next_bundle(s.ring, s.found.what, p, units);
        const Matrix& m = p.matrices[bundle.first.matrix];
        // Float rows are read where they are.
        found = tile_format(static_cast<BlockType>(m.type)).code_bits != 0;
        if (found) keep(s.next, stretch_of(m, bundle, s.ring.bytes));
    }
    keep(s.to_find, units.first);
    return found;
}

// Copies the stretch's next piece by the whole warp. Lanes without work in the last copies are
// masked, not branched around.
OJ_DEVICE void copy_piece(uint8_t* to, const Stretch& s, int bytes) {
    constexpr int at_once = warp_lanes * 16;
    const int part = s.gap == 0 ? bytes : bytes / 2;
    const uint8_t* from = s.from;
    OJ_UNROLL(1)
    for (int left = bytes; left > 0; left -= part) {
        OJ_UNROLL(1)
        for (int at = lane_index() * 16; at - lane_index() * 16 < part; at += 4 * at_once) {
            OJ_UNROLL_ALL
            for (int i = 0; i < 4; ++i) {
                if (at + i * at_once < part)
                    copy_async(to + at + i * at_once, from + at + i * at_once);
            }
        }
        to += part;
        from += part + s.gap;
    }
}

// The same for pieces of a size that the compiler knows: this is in the loop over pieces.
template <int bytes>
OJ_DEVICE void copy_piece(uint8_t* to, const Stretch& s) {
    constexpr int at_once = warp_lanes * 16, half = bytes / 2;
    const int lane_at = not_hoisted(lane_index() * 16);  // else every type's offsets are kept
    to += lane_at;
    const uint8_t* first = s.from + static_cast<uint32_t>(lane_at);
    const uint8_t* second = first + s.gap;
    OJ_UNROLL_ALL
    for (int at = 0; at < bytes; at += at_once) {
        const bool is_first = at + at_once <= half || (at < half && at + lane_at < half);
        if (at + at_once <= bytes || at + lane_at < bytes)
            copy_async(to + at, (is_first ? first : second) + at);
    }
}

// Where in the ring the next piece goes; the ring's end is skipped where it does not fit.
struct RingPlace {
    int at, skipped;
};

OJ_DEVICE RingPlace next_place(const Ring& r, int bytes) {
    const bool wraps = r.write_at + bytes > r.bytes;
    return {wraps ? 0 : r.write_at, wraps ? r.bytes - r.write_at : 0};
}

// The next stretch follows a finished one.
OJ_DEVICE void follow(Ring& r) {
    if (r.current.left != 0) return;
    auto& next = *reinterpret_cast<Stretch*>(shared_memory() + r.next_at);
    r.current = next;
    keep(next.left, 0);
}

// The stretch's next piece has been copied.
OJ_DEVICE void note_issued(Ring& r, int at, int bytes) {
    copy_commit();
    r.write_at = at + bytes;
    r.current.from += r.current.step(bytes);
    r.current.left -= bytes;
    follow(r);
}

// Issues the stretch's next piece if it fits.
OJ_DEVICE bool issue_piece(Ring& r) {
    if (r.in_flight >= most_in_flight || r.current.left == 0) return false;
    const int bytes =
        r.current.left < r.current.piece_bytes ? r.current.left : r.current.piece_bytes;
    if (r.in_flight == 0) r.write_at = r.read_at = r.used = 0;
    const RingPlace place = next_place(r, bytes);
    if (r.used + place.skipped + bytes > r.bytes) return false;
    copy_piece(shared_memory() + r.at + place.at, r.current, bytes);
    ++r.in_flight;
    r.used += place.skipped + bytes;
    note_issued(r, place.at, bytes);
    return true;
}

// Fills the ring and has a stretch ready behind it: called at every unit, so that release() need
// not look ahead.
OJ_DEVICE void fill(Stream& s, Ring& r) {
    do {
        follow(r);
        while (issue_piece(r)) {
        }
    } while (s.next.left == 0 && look_ahead(s));
}

// ring_bytes (smallest_ring_bytes or more) of shared memory from ring_at on are all warps' rings.
// Each warp has a Stream of its own.
OJ_PHASE void open_stream(const Schedule& schedule, int ring_at, int ring_bytes, Stream& stream) {
    Stream s = {};
    s.schedule = &schedule;
    s.now = s.found = turn_at(s, 0);
    s.to_find = s.found.units.first;
    s.ring.bytes = ring_bytes / block_warps / 16 * 16;
    s.ring.at = ring_at + warp_index() * s.ring.bytes;
    s.ring.next_at = static_cast<int>(reinterpret_cast<uint8_t*>(&stream.next) - shared_memory());
    keep(stream, s);
    Ring r = s.ring;
    fill(stream, r);
    keep(stream.ring, r);
}

OJ_DEVICE void next_turn(Stream& s) {
    const int at = s.at + 1;
    const Turn turn = at == s.found_at ? s.found : turn_at(s, at);
    keep(s.at, at);
    keep(s.now, turn);
}

// The next of this warp's units of the phase; false behind the last one of its last part.
OJ_DEVICE bool take_units(Stream& s, const Phase& p, Bundle& bundle) {
    UnitRange units = s.now.units;
    while (same_unit(units.first, units.end)) {
        if (s.now.what.units + 1 == p.units + n_parts(p)) return false;
        next_turn(s);
        units = s.now.units;
    }
    bundle = next_bundle(s.ring, s.now.what, p, units);
    keep(s.now.units.first, units.first);
    return true;
}

// Behind a multiply phase: to the next one, with the ring as full as it gets. Nothing here depends
// on other blocks, so it is done while they are waited for.
OJ_PHASE void next_multiply(Stream& s) {
    next_turn(s);
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

// The oldest piece's place is free, and another takes it: mostly of `usual` bytes, as it had.
template <int usual>
OJ_DEVICE void release(Ring& r, int bytes) {
    warp_sync();
    r.read_at += bytes;
    if (bytes == usual && r.current.piece_bytes == usual && r.current.left >= usual) {
        const RingPlace place = next_place(r, usual);
        const int used = r.used + place.skipped;
        if (used <= r.bytes) {
            copy_piece<usual>(shared_memory() + r.at + place.at, r.current);
            r.used = used;
            note_issued(r, place.at, usual);
            return;
        }
    }
    r.used -= bytes;
    --r.in_flight;
    issue_piece(r);
}

}  // namespace oj::cuda
