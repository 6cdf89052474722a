#include "cuda/schedule_check.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cuda/tile.h"

namespace oj::cuda {

namespace {

// ---- what phases read and write ----

enum class Buffer {
    x,
    out,
    input,
    rotation,
    hidden,
    qkv,
    gate,
    beta,
    alpha,
    key,
    value,
    up,
    core,
    query,
    partials,
    totals,
    logits,
    teams,    // where blocks that choose together meet
    choices,  // scratch.chosen and what choosing leaves beside it
    results,
    draft_logits,
    draft_hidden,
    // kept between steps:
    drawn,
    conv,          // by layer
    state,         // by layer
    records,       // by layer
    state_hidden,  // of slots and records
    pages,         // by layer
};

constexpr const char* buffer_names[] = {
    "x",       "out",     "input",        "rotation",     "hidden", "qkv",
    "gate",    "beta",    "alpha",        "key",          "value",  "up",
    "core",    "query",   "partials",     "totals",       "logits", "teams",
    "choices", "results", "draft_logits", "draft_hidden", "drawn",  "conv",
    "state",   "records", "state_hidden", "pages"};

constexpr bool is_kept(Buffer buffer) {
    return buffer >= Buffer::drawn;
}

// May be left unread at the end of a step.
constexpr bool may_be_left(Buffer buffer) {
    return is_kept(buffer) || buffer == Buffer::hidden || buffer == Buffer::results ||
           buffer == Buffer::draft_hidden;
}

enum class Mode {
    look,    // read; the value stays
    take,    // read for the last time
    update,  // read and written by the same work item
    write,   // a new value
    cover,   // holds nothing, and another buffer lies in its memory
};

struct Access {
    Buffer buffer;
    Mode mode;
    int layer = 0;
};

Buffer buffer_of(Target target) {
    constexpr Buffer buffers[] = {Buffer::qkv,    Buffer::gate,        Buffer::beta, Buffer::alpha,
                                  Buffer::key,    Buffer::value,       Buffer::up,   Buffer::out,
                                  Buffer::logits, Buffer::draft_logits};
    return buffers[static_cast<int>(target)];
}

struct Visit {
    bool has_rows, has_logits;
    bool first_wave, last_wave;
};

// A phase that chooses tokens: scores lie over some of the layers' buffers (place_scratch()).
std::vector<Access> with_scores(std::vector<Access> all) {
    for (Buffer buffer : {Buffer::qkv, Buffer::gate, Buffer::up, Buffer::partials})
        all.push_back({buffer, Mode::cover});
    return all;
}

std::vector<Access> accesses(const Phase& p, const Visit& v) {
    using B = Buffer;
    using M = Mode;
    int state = p.delta.state_layer, kv = p.attention.kv_layer;
    switch (p.kind) {
        case PhaseKind::embed:
            return {{B::x, M::write}, {B::rotation, M::write}};
        case PhaseKind::norm_input:
            if (p.adds == 0) return {{B::x, M::look}, {B::input, M::write}};
            return {{B::out, M::take}, {B::x, M::update}, {B::x, M::look}, {B::input, M::write}};
        case PhaseKind::multiply: {
            std::vector<Access> all = {{B::input, M::take}};
            for (int i = 0; i < p.n_matrices; ++i)
                all.push_back({buffer_of(p.targets[i]), M::write});
            return all;
        }
        case PhaseKind::delta_core: {
            std::vector<Access> kept = {{B::conv, M::look, state},
                                        {B::state, M::update, state},
                                        {B::records, M::update, state}};
            if (!v.has_rows) return kept;
            std::vector<Access> all = {
                {B::qkv, M::look}, {B::beta, M::take}, {B::alpha, M::take}, {B::core, M::write}};
            all.insert(all.end(), kept.begin(), kept.end());
            return all;
        }
        case PhaseKind::delta_out:
            if (!v.has_rows) return {{B::conv, M::update, state}, {B::records, M::look, state}};
            return {{B::core, M::take},           {B::qkv, M::take},
                    {B::gate, M::take},           {B::conv, M::update, state},
                    {B::records, M::look, state}, {B::input, M::write}};
        case PhaseKind::attn_prepare:
            if (p.kv_only != 0) {
                return {{B::key, M::take},
                        {B::value, M::take},
                        {B::rotation, M::look},
                        {B::pages, M::update, kv}};
            }
            return {{B::qkv, M::look},      {B::key, M::take},         {B::value, M::take},
                    {B::rotation, M::look}, {B::pages, M::update, kv}, {B::query, M::write}};
        case PhaseKind::attn_splits:
            return {{B::query, M::look}, {B::pages, M::look, kv}, {B::partials, M::write}};
        case PhaseKind::attn_fold: {  // a row's input is written in the wave of its last split
            std::vector<Access> all = {{B::partials, M::take}, {B::qkv, M::look}};
            all.push_back({B::totals, v.first_wave ? M::write : M::update});
            all.push_back({B::input, v.first_wave ? M::write : M::update});
            if (!v.last_wave) return all;
            for (B buffer : {B::query, B::qkv, B::totals})
                all.push_back({buffer, M::take});
            return all;
        }
        case PhaseKind::act_input:
            return {{B::gate, M::take}, {B::up, M::take}, {B::input, M::write}};
        case PhaseKind::head_input: {
            std::vector<Access> all = {{B::out, M::take}, {B::x, M::take}, {B::hidden, M::write}};
            if (!v.has_logits) return all;
            all.push_back({B::input, M::write});
            all.push_back({B::teams, M::write});
            return all;
        }
        case PhaseKind::choose:
            return with_scores({{B::logits, M::take},
                                {B::teams, M::take},
                                {B::drawn, M::look},
                                {B::choices, M::write}});
        case PhaseKind::verify: {
            std::vector<Access> all = {{B::state_hidden, M::update}, {B::results, M::write}};
            if (v.has_rows) all.push_back({B::hidden, M::look});
            if (v.has_logits) all.push_back({B::choices, M::take});
            return all;
        }
        case PhaseKind::mtp_join: {
            std::vector<Access> all = {{B::x, M::write}, {B::input, M::write}};
            if (p.draft_pass == 0) {
                all.insert(all.end(), {{B::hidden, M::look}, {B::state_hidden, M::look}});
            } else {
                all.insert(all.end(), {{B::results, M::look}, {B::rotation, M::write}});
                all.push_back({p.depth == 0 ? B::hidden : B::draft_hidden, M::look});
            }
            return all;
        }
        case PhaseKind::draft_norm:
            return {{B::out, M::take},
                    {B::x, M::take},
                    {B::draft_hidden, M::write},
                    {B::input, M::write},
                    {B::teams, M::write}};
        case PhaseKind::draft_choose:
            return with_scores({{B::draft_logits, M::take},
                                {B::teams, M::take},
                                {B::results, M::update},
                                {B::drawn, M::write}});
    }
    return {};
}

// ---- following values through a step ----

struct Value {
    bool present = false, read = false;
    int writer = -1;       // entry that wrote it last
    int last_reader = -1;  // entry that read it last
};

class Follower {
public:
    explicit Follower(const std::vector<bool>& barriers) : barriers_(barriers) {}

    // Whether all blocks met between two entries.
    bool ordered(int before, int after) const {
        if (barriers_.empty()) return before < after;
        for (int i = before; i < after; ++i) {
            if (barriers_[i]) return true;
        }
        return false;
    }

    std::string visit(int entry, const Access& access) {
        Value& value = value_of(access);
        const std::string name = buffer_names[static_cast<int>(access.buffer)];
        bool reads = access.mode < Mode::write, writes = access.mode >= Mode::update;
        if (reads && !value.present) return "reads " + name + ", which holds nothing";
        if (access.mode == Mode::cover && value.present) return "writes over " + name;
        if (access.mode == Mode::write && value.present && !value.read && !is_kept(access.buffer)) {
            return "overwrites " + name + ", which nobody has read";
        }
        if (value.writer >= 0 && value.writer != entry && !ordered(value.writer, entry)) {
            return "uses " + name + " without a barrier behind its writer";
        }
        if (writes && value.last_reader >= 0 && value.last_reader != entry &&
            !ordered(value.last_reader, entry)) {
            return "writes " + name + " without a barrier behind its reader";
        }
        if (reads) {
            value.read = true;
            value.last_reader = entry;
            if (access.mode == Mode::take) value.present = false;
        }
        if (writes) {
            value.present = access.mode != Mode::cover;
            value.read = access.mode == Mode::update;
            if (access.mode == Mode::update && !is_kept(access.buffer)) value.read = false;
            value.writer = entry;
        }
        return "";
    }

    std::string leftovers() const {
        for (const auto& [key, value] : values_) {
            if (value.present && !value.read && !may_be_left(key.first)) {
                return std::string(buffer_names[static_cast<int>(key.first)]) + " is never read";
            }
        }
        return "";
    }

private:
    Value& value_of(const Access& access) {
        auto [found, is_new] = values_.try_emplace({access.buffer, access.layer});
        if (is_new && is_kept(access.buffer)) found->second = {true, true, -1, -1};
        return found->second;
    }

    const std::vector<bool>& barriers_;
    std::map<std::pair<Buffer, int>, Value> values_;
};

std::string where(int entry, const Phase& p) {
    return "entry " + std::to_string(entry) + " (phase kind " +
           std::to_string(static_cast<int>(p.kind)) + "): ";
}

// ---- which weights, with which inputs ----

struct Use {
    const Tensor* tensor;
    Target target;
};

std::vector<Use> layer_uses(const Layer& l) {
    if (l.kind == LayerKind::delta_net) {
        return {{&l.attn_qkv, Target::qkv},  {&l.attn_gate, Target::gate},
                {&l.ssm_beta, Target::beta}, {&l.ssm_alpha, Target::alpha},
                {&l.ssm_out, Target::out},   {&l.ffn_gate, Target::gate},
                {&l.ffn_up, Target::up},     {&l.ffn_down, Target::out}};
    }
    return {{&l.attn_q, Target::qkv},      {&l.attn_k, Target::key},    {&l.attn_v, Target::value},
            {&l.attn_output, Target::out}, {&l.ffn_gate, Target::gate}, {&l.ffn_up, Target::up},
            {&l.ffn_down, Target::out}};
}

std::vector<Use> expected_uses(const Model& model, const Tensor* draft_head) {
    std::vector<Use> uses;
    auto add = [&](const std::vector<Use>& more) {
        uses.insert(uses.end(), more.begin(), more.end());
    };
    for (const Layer& layer : model.layers)
        add(layer_uses(layer));
    add({{&model.output, Target::logits}});
    if (draft_head == nullptr) return uses;
    const Mtp& mtp = *model.mtp;
    add({{&mtp.eh_proj, Target::out},
         {&mtp.layer.attn_k, Target::key},
         {&mtp.layer.attn_v, Target::value}});
    for (int depth = 0; depth < OJ_MAX_DRAFTS; ++depth) {
        add({{&mtp.eh_proj, Target::out}});
        add(layer_uses(mtp.layer));
        add({{draft_head, Target::draft_logits}});
    }
    return uses;
}

int input_width(const Phase& p, const Dims& d) {
    switch (p.kind) {
        case PhaseKind::norm_input:
        case PhaseKind::head_input:
        case PhaseKind::draft_norm:
            return d.n_embd;
        case PhaseKind::delta_out:
            return d.v_channels();
        case PhaseKind::attn_fold:
            return d.q_rows();
        case PhaseKind::act_input:
            return d.n_ff;
        case PhaseKind::mtp_join:
            return 2 * d.n_embd;
        default:
            return 0;
    }
}

bool offers(const Forms& forms, int type) {
    switch (block_type_info(static_cast<BlockType>(type)).block_elements) {
        case 1:
            return forms.values != 0;
        case small_group:
            return forms.group32 != 0;
        default:
            return forms.group256 != 0;
    }
}

bool same_matrix(const Matrix& m, const Tensor& t, const uint8_t* data) {
    int64_t whole = m.n_segments == 1 ? t.cols : int64_t{k_segment};
    bool segmented = m.n_segments == 1 || m.n_segments == (t.cols + k_segment - 1) / k_segment;
    return m.data == data && m.type == static_cast<int>(t.type) && m.rows == t.rows &&
           m.cols == t.cols && m.n_tiles == n_tiles(t) && segmented &&
           m.tile_bytes == packed_tile_bytes(t.type, t.cols) &&
           m.segment_bytes == packed_tile_bytes(t.type, whole);
}

// The products that a phase reads were last made in these shapes.
std::string check_shapes(const Phase& p, std::map<Target, std::pair<int, int>>* made) {
    for (int i = 0; i < p.n_products; ++i) {
        const ProductShape& shape = p.products[i];
        std::pair<int, int> value = {shape.rows, shape.n_segments};
        if (p.kind == PhaseKind::multiply) {
            (*made)[shape.target] = value;
        } else if ((*made)[shape.target] != value) {
            return "a product is read in another shape than it was made in";
        }
    }
    return "";
}

}  // namespace

std::string check_program(const Model& model, const WeightAddresses& weights,
                          const Program& program, const Tensor* draft_head) {
    Dims dims = dims_of(model, draft_head != nullptr);
    std::vector<Use> uses = expected_uses(model, draft_head);
    std::map<Target, std::pair<int, int>> made;
    size_t used = 0;
    int width = 0, state_layers = 0, kv_layers = 0;
    Forms forms = {};
    for (size_t i = 0; i < program.phases.size(); ++i) {
        const Phase& p = program.phases[i];
        auto fault = [&](const std::string& what) { return where(static_cast<int>(i), p) + what; };
        if (std::string shape = check_shapes(p, &made); !shape.empty()) return fault(shape);
        if (input_width(p, dims) > 0) {
            width = input_width(p, dims);
            forms = p.forms;
        }
        bool main = p.draft_pass == 0;
        if (p.kind == PhaseKind::delta_core && p.delta.state_layer != state_layers++)
            return fault("takes another layer's state");
        if (p.kind == PhaseKind::delta_out && p.delta.state_layer != state_layers - 1)
            return fault("takes another layer's state");
        if (p.kind == PhaseKind::attn_prepare &&
            p.attention.kv_layer != (main ? kv_layers++ : dims.n_kv_layers - 1))
            return fault("takes another layer's pages");
        if (p.kind != PhaseKind::multiply) continue;
        for (int m = 0; m < p.n_matrices; ++m) {
            if (used == uses.size()) return fault("multiplies with something more");
            const Use& use = uses[used++];
            const Matrix& matrix = p.matrices[m];
            if (!same_matrix(matrix, *use.tensor, weights.matrix(*use.tensor)))
                return fault("does not multiply with " + use.tensor->name);
            if (p.targets[m] != use.target) return fault(use.tensor->name + " has another target");
            if (matrix.cols != width)
                return fault(use.tensor->name + " has an input of other width");
            if (!offers(forms, matrix.type))
                return fault(use.tensor->name + " reads a form that its input lacks");
        }
    }
    if (used < uses.size()) return uses[used].tensor->name + " is not multiplied with";
    if (state_layers != dims.n_delta_layers) return "a layer's state is not advanced";
    if (kv_layers != dims.n_kv_layers) return "a layer's pages are not written";
    return "";
}

std::string check_sequence(const Program& program, const std::vector<SequenceEntry>& sequence,
                           const StepShape& shape, const std::vector<bool>& barriers) {
    Follower follower(barriers);
    int n = static_cast<int>(sequence.size());
    SequenceEntry before = {-1, 0};
    for (int i = 0; i < n; ++i) {
        const SequenceEntry& entry = sequence[i];
        if (entry.phase < 0 || entry.phase >= static_cast<int>(program.phases.size()))
            return "entry " + std::to_string(i) + " names no phase";
        const Phase& p = program.phases[entry.phase];
        bool is_draft = p.draft_pass != 0;
        int waves = is_draft ? shape.draft_waves : shape.waves;
        bool in_turn = entry.wave == 0 ? entry.phase > before.phase
                       : p.kind == PhaseKind::attn_splits
                           ? entry.phase + 1 == before.phase && entry.wave == before.wave + 1
                           : entry.phase == before.phase + 1 && entry.wave == before.wave;
        if (!in_turn) return where(i, p) + "out of turn";
        Visit visit = {shape.n_rows > 0, shape.n_logits > 0, entry.wave == 0,
                       entry.wave == waves - 1};
        for (const Access& access : accesses(p, visit)) {
            std::string fault = follower.visit(i, access);
            if (!fault.empty()) return where(i, p) + fault;
        }
        before = entry;
    }
    return follower.leftovers();
}

namespace {

// Blocks that walk a sequence: who begins an entry has seen its `begins_at` arrivals, and arrives
// when it has done it. Waiting for a number of arrivals is monotone, so what can happen at all
// happens when every block goes as far as it can.
class Walk {
public:
    Walk(const std::vector<SequenceEntry>& sequence, int n_blocks)
        : sequence_(sequence), at_(static_cast<size_t>(n_blocks)) {}

    int entry_of(int block) const { return at_[static_cast<size_t>(block)]; }

    // Blocks go on until nothing moves; `stopped` does its part of entry `stop` for ever. The last
    // entry that any block has begun.
    int run(int stopped, int stop) {
        int last = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int b = 0; b < static_cast<int>(at_.size()); ++b) {
                while (skip(b), can_begin(b)) {
                    last = std::max(last, entry_of(b));
                    if (b == stopped && entry_of(b) == stop) break;
                    ++at_[static_cast<size_t>(b)];
                    ++arrived_;
                    moved = true;
                }
            }
        }
        return last;
    }

private:
    bool at_end(int block) const { return entry_of(block) == static_cast<int>(sequence_.size()); }
    const SequenceEntry& next(int block) const {
        return sequence_[static_cast<size_t>(entry_of(block))];
    }
    void skip(int block) {
        while (!at_end(block) && next(block).n_blocks <= block)
            ++at_[static_cast<size_t>(block)];
    }
    bool can_begin(int block) const { return !at_end(block) && next(block).begins_at <= arrived_; }

    const std::vector<SequenceEntry>& sequence_;
    std::vector<int> at_;
    uint32_t arrived_ = 0;
};

}  // namespace

std::string check_meetings(const Program& program, const StepWork& work,
                           const std::vector<SequenceEntry>& sequence) {
    const int n = static_cast<int>(sequence.size());
    auto fault = [&](int i, const std::string& what) {
        return where(i, program.phases[sequence[i].phase]) + what;
    };
    for (int i = 0; i < n; ++i) {
        if (sequence[i].n_blocks != work.blocks(program.phases[sequence[i].phase]))
            return fault(i, "is not begun by the blocks that have work in it");
    }
    Walk free(sequence, work.n_blocks);
    free.run(-1, -1);
    for (int b = 0; b < work.n_blocks; ++b) {
        if (free.entry_of(b) < n)
            return fault(free.entry_of(b), "never begins for block " + std::to_string(b));
    }
    for (int i = 0; i < n; ++i) {
        for (int b : {0, sequence[i].n_blocks - 1}) {  // blocks differ in what they skip only
            if (Walk(sequence, work.n_blocks).run(b, i) > i)
                return fault(i, "is not waited for by what comes behind it");
        }
    }
    return "";
}

std::string check_runs(const Program& program, const StepWork& work,
                       const std::vector<SequenceEntry>& sequence,
                       const std::vector<ProductRun>& runs) {
    int run = 0, product = runs.empty() ? 0 : runs[0].first;
    for (size_t i = 0; i < sequence.size(); ++i) {
        const SequenceEntry& entry = sequence[i];
        const Phase& p = program.phases[entry.phase];
        auto fault = [&](const char* what) { return where(static_cast<int>(i), p) + what; };
        if (p.kind != PhaseKind::multiply) {
            if (entry.run != -1) return fault("multiplies nothing");
            continue;
        }
        if (run < static_cast<int>(runs.size()) && product == runs[run].end) {
            if (++run < static_cast<int>(runs.size())) product = runs[run].first;
        }
        if (run >= static_cast<int>(runs.size())) return fault("is not streamed");
        if (entry.run != run) return fault("is not in the stream's run");
        if (p.product != product++) return fault("is another product to the stream");
        if (runs[run].n_rows != multiply_rows(p, work.view(p))) return fault("has other rows");
    }
    const bool ends =
        runs.empty() || (run + 1 == static_cast<int>(runs.size()) && product == runs[run].end);
    return ends ? "" : "the stream comes to more products than the step";
}

namespace {

// What the warps have of one product.
class ShareCheck {
public:
    ShareCheck(const Phase& p, int n_warps) : p_(p), bytes_(static_cast<size_t>(n_warps)) {
        for (int m = 0; m < p.n_matrices; ++m) {
            const Matrix& matrix = p.matrices[m];
            taken_.emplace_back(static_cast<size_t>(matrix.n_tiles * matrix.n_segments));
        }
    }

    std::string take(int warp, const Bundle& b) {
        if (b.product != p_.product) return "is of another product";
        if (b.matrix < 0 || b.matrix >= p_.n_matrices) return "names no matrix";
        const Matrix& m = p_.matrices[b.matrix];
        if (b.tiles < 1 || b.tiles > (is_common(static_cast<BlockType>(m.type)) ? 2 : 1))
            return "has too many tiles or none";
        if (b.tile < 0 || b.tile + b.tiles > m.n_tiles) return "goes past the last tile";
        if (b.segment < 0 || b.segment >= m.n_segments) return "names no segment";
        const TileFormat f = tile_format(static_cast<BlockType>(m.type));
        Unit unit = {b.tile, b.segment, b.matrix};
        const int64_t size = unit_bytes(m, unit);
        const bool is_float = f.code_bits == 0;  // its rows are whole
        if (b.from != m.data + (is_float ? unit.tile * m.tile_bytes : unit_offset(m, unit)))
            return "lies elsewhere";
        if (b.bytes != (is_float ? 0 : size)) return "leaves out bytes";
        if (b.tile_bytes != m.tile_bytes) return "finds its second tile elsewhere";
        if (b.block_bytes != block_bytes(f, block_steps) ||
            b.piece_blocks != (f.group == super_group ? 2 : 1))
            return "has other blocks";
        for (; unit.tile < b.tile + b.tiles; ++unit.tile) {
            auto taken = taken_[static_cast<size_t>(b.matrix)].begin() + unit.tile * m.n_segments +
                         unit.segment;
            if (*taken) return "has what another one has";
            *taken = true;
            bytes_[static_cast<size_t>(warp)] += size;
            largest_ = std::max(largest_, size);
        }
        return "";
    }

    std::string end() const {
        for (const std::vector<bool>& taken : taken_) {
            if (std::find(taken.begin(), taken.end(), false) != taken.end())
                return "units are left over";
        }
        const int64_t total = weight_bytes(p_), n = static_cast<int64_t>(bytes_.size());
        int64_t block = 0;
        for (int64_t w = 0; w < n; ++w) {
            if (bytes_[w] * n > total + largest_ * n)
                return "warp " + std::to_string(w) + " has more than its share and a unit";
            block = w % block_warps == 0 ? bytes_[w] : block + bytes_[w];
            if (w % block_warps == block_warps - 1 &&
                block * n > total * block_warps + largest_ * n)
                return "the block of warp " + std::to_string(w) +
                       " has more than its share and a unit";
        }
        return "";
    }

private:
    const Phase& p_;
    std::vector<std::vector<bool>> taken_;  // of every matrix: [tile][segment]
    std::vector<int64_t> bytes_;            // of every warp
    int64_t largest_ = 0;
};

}  // namespace

std::string check_shares(const std::vector<const Phase*>& products, const Shares& shares,
                         int n_blocks) {
    const int n_warps = n_blocks * block_warps;
    const size_t row = products.size() + 1;
    if (shares.first.size() != row * static_cast<size_t>(n_warps)) return "a warp is left out";
    if (shares.first.front() != 0 ||
        shares.first.back() != static_cast<int32_t>(shares.bundles.size()))
        return "bundles are left out";
    for (size_t i = 0; i < products.size(); ++i) {
        if (products[i]->product != static_cast<int>(i))
            return "product " + std::to_string(i) + " has another number";
        ShareCheck check(*products[i], n_warps);
        for (int w = 0; w < n_warps; ++w) {
            const int32_t* first = shares.first.data() + static_cast<size_t>(w) * row + i;
            for (int32_t at = first[0]; at < first[1]; ++at) {
                std::string fault = check.take(w, shares.bundles[static_cast<size_t>(at)]);
                if (!fault.empty())
                    return "product " + std::to_string(i) + ", warp " + std::to_string(w) +
                           ": a bundle " + fault;
            }
        }
        std::string fault = check.end();
        if (!fault.empty()) return "product " + std::to_string(i) + ": " + fault;
    }
    return "";
}

}  // namespace oj::cuda
