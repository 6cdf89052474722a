// Read-only GGUF container (version 2 and 3, little endian): key-values and tensor descriptions,
// bounds-checked, with everything left in the mapped file until somebody asks for it.
//
// Nothing read from the file is trusted. Every count is compared with the bytes that are left
// before anything is allocated for it; at most kMaxKeys keys and kMaxTensors tensors are accepted.
// All errors are oj::Error with OJ_ERR_IO, OJ_ERR_FORMAT or OJ_ERR_UNSUPPORTED and name the file
// and the key or tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/block_types.h"
#include "model/error.h"

namespace oj {

enum class GgufType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

// An array of strings as views into the file.
class GgufStrings {
public:
    size_t size() const { return starts_.size(); }
    std::string_view operator[](size_t i) const;

private:
    friend class GgufFile;
    std::vector<const uint8_t*> starts_;  // each at its string's 8-byte length
};

struct GgufTensor {
    std::string_view name;
    BlockType type;
    uint32_t n_dims;
    int64_t dims[4];  // GGUF order: dims[0] is contiguous; unused ones are 1
    const uint8_t* data;
    size_t bytes;
};

struct GgufKey {
    std::string_view name;
    GgufType type;  // of the value, or of the elements when is_array
    bool is_array;
    uint64_t count;         // elements; 1 for a scalar
    const uint8_t* values;  // unaligned; in an array each string follows its 8-byte length
    uint64_t bytes;         // of `values`
};

class GgufFile {
public:
    static constexpr uint64_t kMaxKeys = 65536;
    static constexpr uint64_t kMaxTensors = 65536;

    // Maps the file. It must not be changed or truncated while mapped.
    static std::unique_ptr<const GgufFile> open(const std::string& path);

    // Reads from memory the caller keeps alive, aligned to 64 bytes; `name` stands for the path in
    // messages.
    static std::unique_ptr<const GgufFile> from_memory(const uint8_t* data, size_t size,
                                                       const std::string& name);

    ~GgufFile();
    GgufFile(const GgufFile&) = delete;
    GgufFile& operator=(const GgufFile&) = delete;

    const std::string& path() const { return path_; }
    size_t size() const { return size_; }

    const std::vector<GgufKey>& keys() const { return keys_; }
    const std::vector<GgufTensor>& tensors() const { return tensors_; }

    const GgufKey* find_key(std::string_view name) const;
    const GgufTensor* find_tensor(std::string_view name) const;

    // Typed access. `find_*` gives nothing when the key is absent and throws when it has another
    // type; `get_*` also throws when it is absent.
    std::optional<int64_t> find_int(std::string_view name) const;
    std::optional<double> find_float(std::string_view name) const;
    std::optional<bool> find_bool(std::string_view name) const;
    std::optional<std::string_view> find_string(std::string_view name) const;
    int64_t get_int(std::string_view name) const;
    double get_float(std::string_view name) const;
    std::string_view get_string(std::string_view name) const;

    // Elements of an array of integers or bools, or a scalar as the only element; empty when
    // absent.
    std::vector<int64_t> find_ints(std::string_view name, uint64_t max_count) const;
    GgufStrings get_strings(std::string_view name) const;

    // Errors that name this file and the key or tensor.
    Error key_error(int code, std::string_view name, const std::string& problem) const;
    Error tensor_error(int code, std::string_view name, const std::string& problem) const;

private:
    class Parser;

    GgufFile(std::string path, const uint8_t* data, size_t size, bool mapped)
        : path_(std::move(path)), data_(data), size_(size), mapped_(mapped) {}
    const GgufKey* find_scalar(std::string_view name, bool (*accepts)(GgufType),
                               const char* expected) const;
    const GgufKey& get_key(std::string_view name) const;

    std::string path_;
    const uint8_t* data_;
    size_t size_;
    bool mapped_;  // data_ is our mapping
    std::vector<GgufKey> keys_;
    std::vector<GgufTensor> tensors_;
    std::vector<uint32_t> keys_by_name_;
    std::vector<uint32_t> tensors_by_name_;
};

// `text` in quotes for a message: clipped, with everything that is not printable ASCII escaped.
std::string quoted(std::string_view text);

}  // namespace oj
