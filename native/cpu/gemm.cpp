#include "cpu/gemm.h"

#include <algorithm>

namespace oj::cpu {

namespace {

// Adds or writes a tile's results where they belong.
void put(const Product& product, int tile, int first, int rows, const float* results) {
    int outputs = product.weight->rows;
    int valid = std::min(tile_rows, outputs - tile * tile_rows);
    for (int r = 0; r < rows; ++r) {
        float* out = product.out + static_cast<size_t>(first + r) * outputs + tile * tile_rows;
        const float* from = results + r * tile_rows;
        for (int i = 0; i < valid; ++i)
            out[i] = product.add ? out[i] + from[i] : from[i];
    }
}

void multiply_tile(const Kernels& kernels, const ActivationView& x, int rows,
                   const Product& product, int tile) {
    alignas(64) float results[max_tile_batch * tile_rows];
    const Matrix& w = *product.weight;
    const uint8_t* data = w.tiles + tile * w.tile_bytes;
    int valid = std::min(tile_rows, w.rows - tile * tile_rows);
    for (int first = 0; first < rows; first += max_tile_batch) {
        int n = std::min(max_tile_batch, rows - first);
        kernels.product(w.type)(data, valid, x, first, n, results);
        put(product, tile, first, n, results);
    }
}

}  // namespace

Forms forms_of(std::initializer_list<const Matrix*> weights) {
    Forms forms;
    for (const Matrix* weight : weights)
        forms = forms.with(weight->type);
    return forms;
}

void multiply(const Worker& worker, const Kernels& kernels, const Activations& input, int rows,
              std::initializer_list<Product> products) {
    if (rows == 0) return;
    size_t total = 0;
    for (const Product& p : products)
        total += p.weight->n_tiles() * p.weight->tile_bytes;
    size_t begin = total * worker.index() / worker.count();
    size_t end = total * (worker.index() + 1) / worker.count();
    size_t base = 0;
    for (const Product& p : products) {  // a tile is the thread's in whose range it starts
        size_t bytes = p.weight->tile_bytes;
        ActivationView view = input.view(p.weight->cols);
        int n = p.weight->n_tiles();
        size_t first = begin <= base ? 0 : (begin - base + bytes - 1) / bytes;
        for (size_t tile = first; tile < size_t(n) && base + tile * bytes < end; ++tile) {
            multiply_tile(kernels, view, rows, p, static_cast<int>(tile));
        }
        base += n * bytes;
    }
}

}  // namespace oj::cpu
