// The schedule of the CUDA backend, proved without a device: for the block counts of an RTX 3090,
// RTX 4090, H200 and RTX 5090, and with mutations that must be found.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "cuda/memory_plan.h"
#include "cuda/schedule_check.h"
#include "expect.h"
#include "model_shapes.h"

namespace oj::cuda {
namespace {

using test::expect;
using test::failures;

void expect_right(const std::string& fault, const std::string& what) {
    expect(fault.empty(), what + ": " + fault);
}

void expect_found(const std::string& fault, const std::string& what) {
    expect(!fault.empty(), what + " is not found");
}

// Device addresses that are the host's.
class SameAddresses : public WeightAddresses {
public:
    const uint8_t* matrix(const Tensor& tensor) const override { return tensor.data; }
    const float* vector(const Tensor& tensor) const override {
        return reinterpret_cast<const float*>(tensor.data);
    }
};

struct Case {
    Model model;
    Tensor draft_head;
    Program program;

    explicit Case(Model&& shape) : model(std::move(shape)) {
        draft_head = model.mtp->head;
        draft_head.rows = draft_head.rows / 6 + 3;  // a reduced, ragged one
        program = make_program(model, SameAddresses(), &draft_head);
    }

    std::string check() const {
        return check_program(model, SameAddresses(), program, &draft_head);
    }
};

const StepShape shapes[] = {
    {1, 1, 1, 0, 0},                      // one row
    {3, 3, 1, 2, 1},                      // drafts
    {24, 24, 2, 8, 2}, {64, 1, 5, 1, 1},  // a prompt chunk
    {64, 0, 3, 0, 0},                     // no logits
    {0, 0, 0, 0, 0},                      // only folds
};

void test_schedules(const Case& c) {
    expect_right(c.check(), "program");
    for (const StepShape& shape : shapes) {
        auto sequence = c.program.sequence(shape);
        expect_right(check_sequence(c.program, sequence, shape), "sequence");
    }
    Program no_mtp = make_program(c.model, SameAddresses(), nullptr);
    expect_right(check_program(c.model, SameAddresses(), no_mtp, nullptr), "program without MTP");
    expect_right(check_sequence(no_mtp, no_mtp.sequence(shapes[0]), shapes[0]), "without MTP");
}

// Every sequence with one entry fewer, or two in each other's place.
void test_mutated_sequences(const Case& c) {
    for (const StepShape& shape : shapes) {
        auto sequence = c.program.sequence(shape);
        for (size_t i = 0; i < sequence.size(); ++i) {
            std::string name = "entry " + std::to_string(i) + " of a step of " +
                               std::to_string(shape.n_rows) + " rows";
            auto fewer = sequence;
            fewer.erase(fewer.begin() + static_cast<long>(i));
            // What a step leaves in its slots, and the last values for others, has no reader in it.
            PhaseKind kind = c.program.phases[sequence[i].phase].kind;
            bool is_last = kind == PhaseKind::draft_choose || kind == PhaseKind::verify ||
                           (shape.n_rows == 0 && kind != PhaseKind::verify) ||
                           (kind == PhaseKind::attn_prepare &&
                            c.program.phases[sequence[i].phase].kv_only != 0);
            if (!is_last) expect_found(check_sequence(c.program, fewer, shape), name + " dropped");
            if (i == 0) continue;
            auto swapped = sequence;
            std::swap(swapped[i - 1], swapped[i]);
            expect_found(check_sequence(c.program, swapped, shape), name + " swapped");
            auto twice = sequence;
            twice.insert(twice.begin() + static_cast<long>(i), sequence[i]);
            expect_found(check_sequence(c.program, twice, shape), name + " twice");
            // The MTP store pass shares nothing with choosing before it and verification behind it.
            PhaseKind last = c.program.phases[sequence[i - 1].phase].kind;
            if (last == PhaseKind::choose && kind == PhaseKind::mtp_join) continue;
            if (last == PhaseKind::attn_prepare && kind == PhaseKind::verify) continue;
            if (shape.n_rows == 0 && kind != PhaseKind::delta_out) continue;
            std::vector<bool> barriers(sequence.size(), true);
            barriers[i - 1] = false;
            expect_found(check_sequence(c.program, sequence, shape, barriers),
                         name + " without a barrier before it");
        }
    }
}

// What decides how many blocks have work: rows of up to eight conversations.
StepView view_of(const StepShape& shape, int n_rows) {
    StepView view = {};
    view.n_rows = view.n_logits = n_rows;
    view.n_runs = view.n_groups = view.n_sampled = std::clamp(n_rows, 1, 8);
    view.wave_splits = shape.waves + 1;
    return view;
}

std::vector<SequenceEntry> planned(const Case& c, const StepShape& shape, const StepWork& work) {
    auto sequence = c.program.sequence(shape);
    plan_meetings(c.program, work, &sequence);
    return sequence;
}

void test_meetings(const Case& c) {
    const Dims dims = dims_of(c.model, true);
    for (const StepShape& shape : shapes) {
        StepView step = view_of(shape, shape.n_rows), draft = view_of(shape, 3);
        for (int n_blocks : {1, 2, 82, 132}) {
            for (int codec : {OJ_KV_Q8_0, OJ_KV_F16}) {
                StepWork work = {dims, codec, step, draft, n_blocks};
                auto sequence = planned(c, shape, work);
                const std::string blocks = std::to_string(n_blocks) + " blocks";
                expect_right(check_meetings(c.program, work, sequence), "meetings of " + blocks);
                auto runs = plan_runs(c.program, work, &sequence);
                expect_right(check_runs(c.program, work, sequence, runs), "products of " + blocks);
            }
        }
    }
}

// Every entry with a block or an arrival too many or too few.
void test_mutated_meetings(const Case& c) {
    const Dims dims = dims_of(c.model, true);
    const StepShape& shape = shapes[1];
    StepView step = view_of(shape, shape.n_rows), draft = view_of(shape, 3);
    StepWork work = {dims, OJ_KV_Q8_0, step, draft, 20};
    const auto sequence = planned(c, shape, work);
    for (size_t i = 0; i < sequence.size(); ++i) {
        auto expect_spoiled = [&](const char* what, auto&& spoil) {
            auto spoiled = sequence;
            spoil(spoiled[i]);
            expect_found(check_meetings(c.program, work, spoiled),
                         "entry " + std::to_string(i) + " with " + what);
        };
        expect_spoiled("a block left out", [](SequenceEntry& e) { --e.n_blocks; });
        expect_spoiled("a block more", [](SequenceEntry& e) { ++e.n_blocks; });
        expect_spoiled("an arrival more", [](SequenceEntry& e) { ++e.begins_at; });
        if (i > 0) expect_spoiled("an arrival fewer", [](SequenceEntry& e) { --e.begins_at; });
    }
}

// Products of the stream left out, added, exchanged, with other rows, or named by no entry.
void test_mutated_runs(const Case& c) {
    const Dims dims = dims_of(c.model, true);
    const StepShape& shape = shapes[1];
    StepView step = view_of(shape, shape.n_rows), draft = view_of(shape, 2);
    StepWork work = {dims, OJ_KV_Q8_0, step, draft, 20};
    auto sequence = planned(c, shape, work);
    const auto runs = plan_runs(c.program, work, &sequence);
    for (size_t i = 0; i < runs.size(); ++i) {
        auto expect_spoiled = [&](const char* what, auto&& spoil) {
            auto spoiled = runs;
            spoil(spoiled);
            expect_found(check_runs(c.program, work, sequence, spoiled),
                         "run " + std::to_string(i) + " " + what);
        };
        using All = std::vector<ProductRun>&;
        expect_spoiled("left out", [&](All r) { r.erase(r.begin() + static_cast<int>(i)); });
        expect_spoiled("twice", [&](All r) { r.insert(r.begin() + static_cast<int>(i), r[i]); });
        expect_spoiled("from another product on", [&](All r) { ++r[i].first; });
        expect_spoiled("with a product more", [&](All r) { ++r[i].end; });
        expect_spoiled("with a product fewer", [&](All r) { --r[i].end; });
        expect_spoiled("with another row", [&](All r) { ++r[i].n_rows; });
    }
    for (size_t i = 0; i < sequence.size(); ++i) {
        auto spoiled = sequence;
        ++spoiled[i].run;
        expect_found(check_runs(c.program, work, spoiled, runs),
                     "entry " + std::to_string(i) + " in another run");
    }
}

struct Mutation {
    const char* what;
    std::function<void(Program&)> spoil;
};

Phase& find(Program& program, PhaseKind kind, int skip = 0) {
    for (Phase& p : program.phases) {
        if (p.kind == kind && skip-- == 0) return p;
    }
    return program.phases[0];
}

void test_mutated_programs() {
    const Mutation mutations[] = {
        {"an exchanged matrix",
         [](Program& p) {
             std::swap(find(p, PhaseKind::multiply, 2).matrices[0],
                       find(p, PhaseKind::multiply, 2).matrices[1]);
         }},
        {"an exchanged target",
         [](Program& p) {
             std::swap(find(p, PhaseKind::multiply, 2).targets[0],
                       find(p, PhaseKind::multiply, 2).targets[1]);
         }},
        {"a matrix left out", [](Program& p) { --find(p, PhaseKind::multiply).n_matrices; }},
        {"a matrix with fewer rows",
         [](Program& p) { --find(p, PhaseKind::multiply).matrices[0].rows; }},
        {"a matrix with fewer tiles",
         [](Program& p) { --find(p, PhaseKind::multiply, 3).matrices[0].n_tiles; }},
        {"another segment size",
         [](Program& p) { find(p, PhaseKind::multiply, 3).matrices[0].segment_bytes -= 64; }},
        {"another layer's state",
         [](Program& p) { ++find(p, PhaseKind::delta_core).delta.state_layer; }},
        {"another layer's pages",
         [](Program& p) { ++find(p, PhaseKind::attn_prepare).attention.kv_layer; }},
        {"a form that is missing", [](Program& p) { find(p, PhaseKind::act_input).forms = {}; }},
        {"a product of another shape",
         [](Program& p) { ++find(p, PhaseKind::norm_input, 3).products[0].n_segments; }},
        {"two phases exchanged",
         [](Program& p) {
             std::swap(find(p, PhaseKind::multiply, 1), find(p, PhaseKind::multiply, 5));
         }},
    };
    for (const Mutation& mutation : mutations) {
        Case spoiled(test::shape_mixed());
        mutation.spoil(spoiled.program);
        expect_found(spoiled.check(), mutation.what);
    }
}

void test_shares(const Case& c) {
    const auto products = products_of(c.program);
    size_t most = 0;
    for (int blocks : {82, 128, 132, 170, 1}) {
        const Shares shares = share_products(products, blocks);
        expect_right(check_shares(products, shares, blocks),
                     "shares of " + std::to_string(blocks) + " blocks");
        const size_t bytes = shares.bundles.size() * sizeof(Bundle) + 4 * shares.first.size() +
                             c.program.phases.size() * sizeof(Phase);
        if (bytes > most) most = bytes;
    }
    std::printf("%.1f MB of phases and bundles\n", static_cast<double>(most) / 1e6);
    expect(most <= static_cast<size_t>(schedule_bytes), "the memory plan spares enough for them");
}

// One bundle, about the middle of all, with something else in it; one left out, one of another
// warp's too many, and all of a product with one warp.
void test_mutated_shares(const Case& c) {
    const auto products = products_of(c.program);
    const Shares shares = share_products(products, 132);
    auto expect_spoiled = [&](const char* what, auto&& spoil) {
        Shares spoiled = shares;
        spoil(spoiled);
        expect_found(check_shares(products, spoiled, 132), what);
    };
    const size_t at = shares.bundles.size() / 2;
    expect_spoiled("another product", [&](Shares& s) { ++s.bundles[at].product; });
    expect_spoiled("another matrix", [&](Shares& s) { ++s.bundles[at].matrix; });
    expect_spoiled("another segment", [&](Shares& s) { ++s.bundles[at].segment; });
    expect_spoiled("the tile behind", [&](Shares& s) { ++s.bundles[at].tile; });
    expect_spoiled("a tile more", [&](Shares& s) { ++s.bundles[at].tiles; });
    expect_spoiled("a tile fewer", [&](Shares& s) { --s.bundles[at].tiles; });
    expect_spoiled("weights from elsewhere", [&](Shares& s) { s.bundles[at].from += 16; });
    expect_spoiled("fewer bytes", [&](Shares& s) { s.bundles[at].bytes -= 16; });
    expect_spoiled("tiles elsewhere", [&](Shares& s) { s.bundles[at].tile_bytes += 16; });
    expect_spoiled("other blocks", [&](Shares& s) { ++s.bundles[at].block_bytes; });
    expect_spoiled("other pieces", [&](Shares& s) { ++s.bundles[at].piece_blocks; });
    expect_spoiled("a bundle twice", [&](Shares& s) { s.bundles[at] = s.bundles[at - 1]; });
    expect_spoiled("a bundle behind the last one",
                   [&](Shares& s) { s.bundles.push_back(s.bundles[at]); });
    expect_spoiled("a warp left out", [&](Shares& s) { s.first.pop_back(); });
    expect_spoiled("a product's bundle in another one's", [&](Shares& s) { ++s.first[1]; });

    std::vector<Phase> renumbered;
    for (const Phase* p : products) {
        renumbered.push_back(*p);
        ++renumbered.back().product;
    }
    std::vector<const Phase*> others;
    for (const Phase& p : renumbered)
        others.push_back(&p);
    expect_found(check_shares(others, share_products(others, 132), 132), "other numbers");

    const std::vector<const Phase*> first = {products[0]};
    Shares greedy = share_products(first, 132);
    for (size_t i = 1; i < greedy.first.size(); ++i)
        greedy.first[i] = static_cast<int32_t>(greedy.bundles.size());
    expect_found(check_shares(first, greedy, 132), "a warp with everything");
}

// A step streams the file's matrices once, token_embd left out.
void test_bytes(const Case& c) {
    int64_t main = 0, draft = 0;
    for (const Phase& p : c.program.phases) {
        if (p.kind != PhaseKind::multiply) continue;
        bool in_step = &p - c.program.phases.data() <= c.program.output;
        if (in_step) main += weight_bytes(p);
        if (p.draft_pass != 0 && p.depth == 0) draft += weight_bytes(p);
    }
    std::printf("27B: %.3f GB a step, %.3f GB a draft pass (packed)\n", main / 1e9, draft / 1e9);
    expect(main > 15.8e9 && main < 16.3e9, "bytes of a step");
}

}  // namespace

int run() {
    Case large(test::shape_27b()), mixed(test::shape_mixed());
    test_schedules(large);
    test_schedules(mixed);
    test_mutated_sequences(mixed);
    test_meetings(large);
    test_meetings(mixed);
    test_mutated_meetings(mixed);
    test_mutated_runs(mixed);
    test_mutated_programs();
    test_shares(large);
    test_shares(mixed);
    test_mutated_shares(large);
    test_bytes(large);
    return failures == 0 ? 0 : 1;
}

}  // namespace oj::cuda

int main() {
    return oj::cuda::run();
}
