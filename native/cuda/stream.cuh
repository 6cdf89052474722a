// The weights of a step, streamed once: each warp copies the blocks of its units (partition.h) into
// its own ring in shared memory, as far ahead as the ring reaches and across phases, so that DRAM
// does not idle while the blocks of the grid meet. The same warp consumes them in the same order;
// no other warp is waited for.
#pragma once

#include "cuda/phase.h"
#include "cuda/ptx.h"
#include "cuda/tile.h"

namespace oj::cuda {

constexpr int most_in_flight = 8;

// What the rings of a block need at least: a block of weights a warp.
constexpr int smallest_ring_bytes = block_warps * largest_block_bytes;

// Packed weights of a bundle that are not issued yet. Pieces of two tiles have two halves, which
// lie apart.
struct Stretch {
    const uint8_t* from;
    int left;         // bytes
    int piece_bytes;  // the last piece may have less
    uint32_t gap;     // from the end of a piece's first half to its second one

    // From a piece to the next one.
    OJ_HD uint32_t step(int piece) const { return gap == 0 ? piece : piece / 2; }
};

// Pairs of tiles are multiplied together where there are registers for their sums, and where two
// pieces of a block of each fit into the warp's ring.
OJ_HD constexpr bool pairs_together(int block_bytes, int n_rows, int ring_bytes) {
    return n_rows <= most_pair_groups * column_rows && 4 * block_bytes <= ring_bytes;
}

// Blocks of one tile that are copied and taken together, of at most `most`: three such pieces fit
// into a warp's ring.
OJ_HD constexpr int blocks_of_piece(int block_bytes, int most, int ring_bytes) {
    return 3 * most * block_bytes <= ring_bytes ? most : 1;
}

OJ_DEVICE Stretch stretch_of(const Bundle& bundle, int ring_bytes) {
    const int block = bundle.block_bytes;
    if (bundle.tiles == 2) {
        return {bundle.from, 2 * bundle.bytes, 2 * block,
                static_cast<uint32_t>(bundle.tile_bytes - block)};
    }
    return {bundle.from, bundle.bytes,
            block * blocks_of_piece(block, bundle.piece_blocks, ring_bytes), 0};
}

// A warp's ring: bytes of shared memory; a block never wraps, the rest of the ring is skipped.
// Every lane has the same values, in registers while it multiplies.
struct Ring {
    int at, bytes;
    int write_at, read_at;  // in the ring
    int used;               // bytes from read_at to write_at, skipped ones included
    int in_flight;          // pieces issued and not yet released
    int issued;             // pieces of the step
    int next_at;            // Stream.next in shared memory
    Stretch current;        // what is issued next
};

// A warp's way through its bundles of a step, tile by tile: what is next and where its bundles of
// this run of products end. Both are twice an index into Schedule.bundles, and odd between the
// tiles of a pair.
struct Walk {
    int at, end;
    int16_t run, n_rows;
};

// A bundle on its way to shared memory: the one a walk comes to, not yet divided into tiles.
struct Coming {
    Bundle bundle;
    Walk walk;
    int asked_at;  // Ring.issued then
};

// A warp's stream, in shared memory: what lane 0 writes, all lanes read.
struct Stream {
    Ring ring;     // while nothing is multiplied
    Stretch next;  // what is issued behind the ring's
    Coming found;  // what is issued behind that
    Coming taken;  // what is multiplied next
};

// This warp's way through a run of the step's products; behind the last one there is nothing.
OJ_DEVICE Walk walk_of(const Schedule& schedule, int run) {
    const auto index = static_cast<int16_t>(run < schedule.n_runs ? run : schedule.n_runs);
    if (index == schedule.n_runs) return {0, 0, index, 0};
    ProductRun products = in_global(schedule.runs)[index];
    if (schedule.only >= 0) {
        products.first = static_cast<int16_t>(schedule.only);
        products.end = static_cast<int16_t>(schedule.only + 1);
    }
    const int warp = block_index() * block_warps + uniform_warp_index();
    const int32_t* first = in_global(schedule.first_bundles) + warp * (schedule.n_products + 1);
    return {2 * first[products.first], 2 * first[products.end], index,
            static_cast<int16_t>(products.n_rows)};
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
    ++r.issued;
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

// Asks for the bundle that a walk comes to: it arrives with the next piece that is issued.
OJ_DEVICE void ask(const Schedule& schedule, Walk walk, int issued, Coming& coming) {
    while (walk.at == walk.end && walk.run < schedule.n_runs)
        walk = walk_of(schedule, walk.run + 1);
    warp_sync();
    if (lane_index() == 0) {
        coming.walk = walk;
        coming.asked_at = issued;
        if (walk.at == walk.end) coming.bundle.product = -1;
    }
    if (walk.at != walk.end && lane_index() < static_cast<int>(sizeof(Bundle) / 16)) {
        auto* from = reinterpret_cast<const uint8_t*>(in_global(schedule.bundles) + walk.at / 2);
        copy_async_kept(reinterpret_cast<uint8_t*>(&coming.bundle) + lane_index() * 16,
                        from + lane_index() * 16);
    }
    warp_sync();
}

// The one rule by which weights are streamed and taken: what comes next of a walk, which goes
// behind it; of product -1 at the step's end.
OJ_DEVICE Bundle receive(const Ring& r, const Coming& coming, Walk& walk) {
    const int younger = r.issued - coming.asked_at;  // pieces than the bundle
    if (younger == 0) copy_commit();
    if (younger <= r.in_flight)
        wait_until_left<0, most_in_flight - 1>(younger == 0 ? 0 : younger - 1);
    warp_sync();
    Bundle bundle = coming.bundle;
    walk = coming.walk;
    if (bundle.product < 0) return bundle;
    const int second = walk.at % 2;
    if (bundle.tiles == 2 && !pairs_together(bundle.block_bytes, walk.n_rows, r.bytes)) {
        if (second != 0) bundle.from += bundle.tile_bytes;
        bundle.tile += second;
        bundle.tiles = 1;
        ++walk.at;
    } else {
        walk.at += 2;
    }
    return bundle;
}

// Finds the stretch after the next one; false when there is none.
OJ_DEVICE bool look_ahead(const Schedule& schedule, const Ring& r, Stream& s) {
    Walk walk;
    Bundle bundle;
    do {  // float rows are read where they are
        bundle = receive(r, s.found, walk);
        if (bundle.product < 0) return false;
        ask(schedule, walk, r.issued, s.found);
    } while (bundle.bytes == 0);
    keep(s.next, stretch_of(bundle, r.bytes));
    return true;
}

// Fills the ring and has a stretch ready behind it: called at every bundle, so that release() need
// not look ahead.
OJ_PHASE void fill(const Schedule& schedule, Stream& s) {
    Ring r = s.ring;
    do {
        follow(r);
        while (issue_piece(r)) {
        }
    } while (s.next.left == 0 && look_ahead(schedule, r, s));
    keep(s.ring, r);
}

// ring_bytes (smallest_ring_bytes or more) of shared memory from ring_at on are all warps' rings.
// Each warp has a Stream of its own.
OJ_PHASE void open_stream(const Schedule& schedule, int ring_at, int ring_bytes, Stream& stream) {
    Ring r = {};
    r.bytes = ring_bytes / block_warps / 16 * 16;
    r.at = ring_at + uniform_warp_index() * r.bytes;
    r.next_at = static_cast<int>(reinterpret_cast<uint8_t*>(&stream.next) - shared_memory());
    const Walk first = walk_of(schedule, 0);
    keep(stream.ring, r);
    keep(stream.next.left, 0);
    ask(schedule, first, 0, stream.taken);
    ask(schedule, first, 0, stream.found);
    fill(schedule, stream);
}

// The next of this warp's bundles if it is one of the product's.
OJ_DEVICE bool take_bundle(const Schedule& schedule, Stream& s, int product, Bundle& bundle) {
    Walk walk;
    bundle = receive(s.ring, s.taken, walk);
    if (bundle.product != product) return false;
    ask(schedule, walk, s.ring.issued, s.taken);
    return true;
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
