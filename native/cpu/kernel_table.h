// The table over the functions of the other kernel headers. Included last.
#pragma once

void verify_rows(const SampledRows& rows, SampleWorkspace work, oj_seq_result* result) {
    verify(rows, work, result);
}

int32_t draw_draft(const float* logits, int32_t n_vocab, const oj_sampling& sampling,
                   const Penalties& penalties, int32_t position, SampleWorkspace work,
                   Distribution* q) {
    return draft_token(logits, n_vocab, sampling, penalties, position, work, q);
}

constexpr Kernels make_kernels(const char* name) {
    Kernels k = {};
    k.name = name;
    auto set = [&k](BlockType type, TileProduct f) { k.products[static_cast<int>(type)] = f; };
    set(BlockType::Q4_K, tile_product<format_of<BlockType::Q4_K>>);
    set(BlockType::Q5_K, tile_product<format_of<BlockType::Q5_K>>);
    set(BlockType::Q6_K, tile_product<format_of<BlockType::Q6_K>>);
    set(BlockType::IQ4_XS, tile_product<format_of<BlockType::IQ4_XS>>);
    set(BlockType::Q8_0, tile_product<format_of<BlockType::Q8_0>>);
    set(BlockType::Q4_0, tile_product<format_of<BlockType::Q4_0>>);
    set(BlockType::Q4_1, tile_product<format_of<BlockType::Q4_1>>);
    set(BlockType::Q5_0, tile_product<format_of<BlockType::Q5_0>>);
    set(BlockType::Q5_1, tile_product<format_of<BlockType::Q5_1>>);
    set(BlockType::IQ4_NL, tile_product<format_of<BlockType::IQ4_NL>>);
    set(BlockType::F32, float_product<LoadF32>);
    set(BlockType::F16, float_product<LoadF16>);
    set(BlockType::BF16, float_product<LoadBF16>);
    k.quantize256 = quantize256;
    k.quantize32 = quantize32;
    k.quantize16 = quantize16;
    k.rms_norm = rms_norm;
    k.l2_norm = l2_norm;
    k.silu_mul = silu_mul;
    k.sigmoid_mul = sigmoid_mul;
    k.conv_silu = conv_silu;
    k.delta = delta;
    k.attend[OJ_KV_Q8_0] = attend<IntegerTile>;
    k.attend[OJ_KV_F16] = attend<FloatTile<LoadF16>>;
    k.attend[OJ_KV_F32] = attend<FloatTile<LoadF32>>;
    k.fold_split = fold_split;
    k.verify = verify_rows;
    k.draft = draw_draft;
    return k;
}
