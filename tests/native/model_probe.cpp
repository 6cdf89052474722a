// What test_gguf.py asks of native/model. Errors of the model code go to stderr, with status 1.
//
//     model_probe describe FILE           what the loader makes of a file, one "name value" a line
//     model_probe tokens FILE             the bytes of every token in hex, one a line
//     model_probe dequantise TYPE COLS    rows of blocks on stdin -> rows of floats on stdout
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/model.h"

namespace {

void print_tensor(const char* role, const oj::Tensor& tensor) {
    if (!tensor.data) return;
    std::printf("%s %s %s %lld %lld\n", role, tensor.name.c_str(),
                oj::block_type_info(tensor.type).name, static_cast<long long>(tensor.rows),
                static_cast<long long>(tensor.cols));
}

void describe(const char* path) {
    const oj::Model model = oj::load_model(path);
    const oj::Hparams& h = model.hparams;
    std::printf("n_vocab %d\nn_ctx_train %d\nn_embd %d\nn_ff %d\nn_layers %d\n", h.n_vocab,
                h.n_ctx_train, h.n_embd, h.n_ff, h.n_layers);
    std::printf("n_heads %d\nn_kv_heads %d\nhead_dim %d\nrope_dim %d\nrope_base %g\n", h.n_heads,
                h.n_kv_heads, h.head_dim, h.rope_dim, static_cast<double>(h.rope_base));
    std::printf("n_k_heads %d\nn_v_heads %d\nstate_dim %d\nconv_kernel %d\nrms_eps %g\n",
                h.n_k_heads, h.n_v_heads, h.state_dim, h.conv_kernel,
                static_cast<double>(h.rms_eps));
    std::printf("has_mtp %d\ntied %d\nparameters %lld\n", h.has_mtp, model.tied,
                static_cast<long long>(model.parameters));
    std::printf("kinds ");
    for (const oj::Layer& layer : model.layers) {
        std::putchar(layer.kind == oj::LayerKind::attention ? 'a' : 'd');
    }
    std::printf("\neos_id %d\npre %s\n", model.vocab.eos_id(),
                std::string(model.vocab.pre()).c_str());
    std::printf("n_merges %zu\n", model.vocab.merges().size());
    for (const oj::Tensor& tensor : model.tensors)
        print_tensor("tensor", tensor);
    for (const oj::Layer& layer : model.layers) {
        print_tensor("attn_q", layer.attn_q);
        print_tensor("attn_k", layer.attn_k);
    }
}

void tokens(const char* path) {
    const oj::Model model = oj::load_model(path);
    for (int32_t id = 0; id < model.vocab.size(); ++id) {
        for (char c : model.vocab.bytes(id))
            std::printf("%02x", static_cast<unsigned char>(c));
        std::putchar('\n');
    }
}

void dequantise(uint32_t type_id, int64_t cols) {
    const oj::BlockTypeInfo* type = oj::find_block_type(type_id);
    if (!type) throw oj::Error(OJ_ERR_UNSUPPORTED, oj::ggml_type_name(type_id));
    std::cin >> std::noskipws;
    const std::vector<char> blocks((std::istreambuf_iterator<char>(std::cin)),
                                   std::istreambuf_iterator<char>());
    const size_t stride = oj::row_bytes(type->type, cols);
    std::vector<float> row(static_cast<size_t>(cols));
    for (size_t at = 0; at + stride <= blocks.size(); at += stride) {
        oj::dequantise_row(type->type, reinterpret_cast<const uint8_t*>(blocks.data() + at), cols,
                           row.data());
        std::fwrite(row.data(), sizeof(float), row.size(), stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string command = argc > 2 ? argv[1] : "";
    try {
        if (command == "describe") {
            describe(argv[2]);
        } else if (command == "tokens") {
            tokens(argv[2]);
        } else if (command == "dequantise" && argc == 4) {
            dequantise(static_cast<uint32_t>(std::atoi(argv[2])), std::atoll(argv[3]));
        } else {
            std::fputs("usage: see the head of model_probe.cpp\n", stderr);
            return 2;
        }
    } catch (const oj::Error& error) {
        std::fprintf(stderr, "%d %s\n", error.code(), error.what());
        return 1;
    }
    return 0;
}
