#include "engine/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/pages.h"
#include "model/gguf.h"
#include "model/model.h"

namespace oj {

namespace {

constexpr char kMagic[8] = {'O', 'J', 'S', 'T', 'A', 'T', 'E', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxTokens = 1 << 26;
constexpr uint32_t kMaxStates = 1 << 10;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t n_states;
    uint64_t fingerprint;
    uint64_t page_bytes;
    uint64_t state_bytes;
    uint64_t n_tokens;
    uint64_t checksum;  // of header, tokens, records and page checksums, with 0 in its own place
};

struct StateRecord {
    int32_t length;
    int32_t shared;
    uint64_t checksum;
};

// Four lanes of xor, multiply and rotate over 8-byte words. Each step is a bijection of its lane,
// so a change in one word is always seen.
class Checksum {
public:
    void add(const void* data, size_t n) {
        const auto* bytes = static_cast<const uint8_t*>(data);
        for (; n >= 32; bytes += 32, n -= 32)
            add_block(bytes);
        uint8_t rest[32] = {};
        if (n > 0) std::memcpy(rest, bytes, n);
        rest[31] = static_cast<uint8_t>(n);
        add_block(rest);
    }

    uint64_t value() const {
        uint64_t all = 0;
        for (uint64_t lane : lanes_)
            all = mix(all, lane);
        return all;
    }

private:
    static uint64_t mix(uint64_t lane, uint64_t word) {
        lane = (lane ^ word) * 0x9e3779b97f4a7c15ull;
        return lane << 29 | lane >> 35;
    }

    void add_block(const uint8_t* block) {
        uint64_t words[4];
        std::memcpy(words, block, sizeof words);
        for (int i = 0; i < 4; ++i)
            lanes_[i] = mix(lanes_[i], words[i]);
    }

    uint64_t lanes_[4] = {1, 2, 3, 4};
};

uint64_t checksum(const void* data, size_t n) {
    Checksum sum;
    sum.add(data, n);
    return sum.value();
}

size_t n_pages(uint64_t n_tokens) {
    return static_cast<size_t>((n_tokens + kPageSize - 1) / kPageSize);
}

uint64_t index_bytes(uint64_t n_tokens, uint64_t n_states) {
    return sizeof(Header) + n_tokens * sizeof(int32_t) + n_states * sizeof(StateRecord) +
           n_pages(n_tokens) * sizeof(uint64_t);
}

uint64_t file_bytes(const StateFormat& format, uint64_t n_tokens, uint64_t n_states) {
    return index_bytes(n_tokens, n_states) + n_states * format.state_bytes +
           n_pages(n_tokens) * format.page_bytes;
}

[[noreturn]] void fail(const std::string& action, const std::string& path) {
    const std::string what = "cannot " + action + " " + path + ": " + std::strerror(errno);
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) {
        throw Error(OJ_ERR_MEMORY, what + "; make room on its disk, or use a folder on another");
    }
    throw Error(OJ_ERR_IO, what);
}

std::string parent_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// A file that becomes `path` when it is complete, and is gone if that never happens.
class NewFile {
public:
    explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".openjet-tmp") {
        unlink(temporary_.c_str());
        fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd_ < 0) fail("create", temporary_);
    }

    ~NewFile() {
        if (fd_ >= 0) close(fd_);
        if (!temporary_.empty()) unlink(temporary_.c_str());
    }

    void add(const void* data, size_t n) {
        const auto* bytes = static_cast<const char*>(data);
        while (n > 0) {
            const ssize_t done = write(fd_, bytes, n);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) fail("write", path_);
            bytes += done;
            n -= static_cast<size_t>(done);
        }
    }

    // The bytes are on the disk before the name is theirs, and the name before this returns.
    void finish() {
        if (fsync(fd_) != 0) fail("write", path_);
        const int fd = fd_;
        fd_ = -1;
        if (close(fd) != 0) fail("write", path_);
        if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("write", path_);
        temporary_.clear();
        const int folder = open(parent_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0) return;
        fsync(folder);
        close(folder);
    }

private:
    const std::string path_;
    std::string temporary_;  // empty once it has its name
    int fd_ = -1;
};

// The whole file up to its states, checksummed.
std::vector<uint8_t> pack_index(const StateFormat& format, const SavedConversation& saved) {
    Header header = {};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.n_states = static_cast<uint32_t>(saved.states.size());
    header.fingerprint = format.fingerprint;
    header.page_bytes = format.page_bytes;
    header.state_bytes = format.state_bytes;
    header.n_tokens = saved.tokens.size();
    std::vector<uint8_t> packed;
    const auto add = [&](const void* data, size_t n) {
        const auto* bytes = static_cast<const uint8_t*>(data);
        packed.insert(packed.end(), bytes, bytes + n);
    };
    add(&header, sizeof header);
    add(saved.tokens.data(), saved.tokens.size() * sizeof(int32_t));
    for (const SavedState& state : saved.states) {
        const StateRecord record{state.length, state.shared,
                                 checksum(state.bytes.get(), format.state_bytes)};
        add(&record, sizeof record);
    }
    for (const StateBytes& page : saved.pages) {
        const uint64_t sum = checksum(page.get(), format.page_bytes);
        add(&sum, sizeof sum);
    }
    header.checksum = checksum(packed.data(), packed.size());
    std::memcpy(packed.data(), &header, sizeof header);
    return packed;
}

}  // namespace

StateFormat make_state_format(const Model& model, const oj_backend_options& options,
                              const oj_state_format& backend) {
    Checksum sum;
    const auto add_number = [&](int64_t number) { sum.add(&number, sizeof number); };
    for (const GgufKey& key : model.file->keys()) {
        sum.add(key.name.data(), key.name.size());
        sum.add(key.values, key.bytes);
    }
    constexpr size_t kSample = 512;
    for (const Tensor& tensor : model.tensors) {
        sum.add(tensor.name.data(), tensor.name.size());
        add_number(static_cast<int64_t>(tensor.type));
        add_number(tensor.rows);
        add_number(tensor.cols);
        const size_t n = std::min(tensor.bytes(), kSample);
        for (size_t part = 0; part < 3; ++part)
            sum.add(tensor.data + part * (tensor.bytes() - n) / 2, n);
    }
    for (int64_t number : {int64_t{options.kind}, int64_t{options.kv_codec}, int64_t{options.mtp},
                           int64_t{backend.version}, backend.page_bytes, backend.snapshot_bytes})
        add_number(number);
    return {sum.value(), static_cast<size_t>(backend.page_bytes),
            static_cast<size_t>(backend.snapshot_bytes)};
}

uint64_t state_file_bytes(const StateFormat& format, const SavedConversation& conversation) {
    return file_bytes(format, conversation.tokens.size(), conversation.states.size());
}

void write_state_file(const std::string& path, const StateFormat& format,
                      const SavedConversation& conversation) {
    const std::vector<uint8_t> index = pack_index(format, conversation);
    NewFile file(path);
    file.add(index.data(), index.size());
    for (const SavedState& state : conversation.states)
        file.add(state.bytes.get(), format.state_bytes);
    for (const StateBytes& page : conversation.pages)
        file.add(page.get(), format.page_bytes);
    file.finish();
}

// ---------------------------------------------------------------- reading

StateFile::StateFile(const std::string& path, const StateFormat& format)
    : path_(path),
      format_(format),
      fd_(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
    if (fd_ < 0) fail("open", path);
    try {
        read_index();
    } catch (...) {
        close(fd_);
        throw;
    }
}

StateFile::~StateFile() {
    close(fd_);
}

void StateFile::refuse(const std::string& what) const {
    throw Error(OJ_ERR_FORMAT, path_ + " " + what);
}

void StateFile::read_index() {
    struct stat info = {};
    if (fstat(fd_, &info) != 0) fail("read", path_);
    if (!S_ISREG(info.st_mode)) refuse("is not a file");
    const auto size = static_cast<uint64_t>(info.st_size);
    Header header = {};
    if (size < sizeof header) refuse("is no state file: too short");
    read(&header, sizeof header, 0);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse("is no state file");
    if (header.version != kVersion) {
        refuse("has format version " + std::to_string(header.version) + "; this build reads " +
               std::to_string(kVersion));
    }
    if (header.fingerprint != format_.fingerprint || header.page_bytes != format_.page_bytes ||
        header.state_bytes != format_.state_bytes) {
        refuse("belongs to another model, backend, version or KV format");
    }
    if (header.n_tokens < 1 || header.n_tokens > kMaxTokens || header.n_states < 1 ||
        header.n_states > kMaxStates) {
        refuse("is damaged: impossible counts");
    }
    const uint64_t expected = file_bytes(format_, header.n_tokens, header.n_states);
    if (size != expected) {
        refuse("has " + std::to_string(size) + " bytes instead of " + std::to_string(expected));
    }
    std::vector<uint8_t> packed(index_bytes(header.n_tokens, header.n_states));
    read(packed.data(), packed.size(), 0);
    Header unsigned_header = header;
    unsigned_header.checksum = 0;
    std::memcpy(packed.data(), &unsigned_header, sizeof unsigned_header);
    if (checksum(packed.data(), packed.size()) != header.checksum) {
        refuse("is damaged: its index has another checksum");
    }

    const uint8_t* at = packed.data() + sizeof header;
    const auto take = [&](void* out, size_t n) {
        std::memcpy(out, at, n);
        at += n;
    };
    index_.tokens.resize(header.n_tokens);
    take(index_.tokens.data(), header.n_tokens * sizeof(int32_t));
    int32_t previous = 0;
    for (uint32_t i = 0; i < header.n_states; ++i) {
        StateRecord record = {};
        take(&record, sizeof record);
        if (record.length <= previous) refuse("is damaged: its states do not ascend");
        previous = record.length;
        index_.states.push_back({record.length, record.shared != 0, nullptr});
        state_checksums_.push_back(record.checksum);
    }
    if (static_cast<uint64_t>(previous) != header.n_tokens) {
        refuse("is damaged: no state at its end");
    }
    page_checksums_.resize(n_pages(header.n_tokens));
    take(page_checksums_.data(), page_checksums_.size() * sizeof(uint64_t));
    first_state_ = packed.size();
    first_page_ = first_state_ + header.n_states * format_.state_bytes;
}

void StateFile::read(void* out, size_t n, uint64_t offset) const {
    auto* bytes = static_cast<char*>(out);
    while (n > 0) {
        const ssize_t done = pread(fd_, bytes, n, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("read", path_);
        if (done == 0) refuse("was cut while it was read");
        bytes += done;
        offset += static_cast<uint64_t>(done);
        n -= static_cast<size_t>(done);
    }
}

StateBytes StateFile::read_checked(size_t n, uint64_t offset, uint64_t sum) const {
    std::shared_ptr<uint8_t[]> bytes(new uint8_t[n]);
    read(bytes.get(), n, offset);
    if (checksum(bytes.get(), n) != sum) refuse("is damaged: a part has another checksum");
    return bytes;
}

StateBytes StateFile::read_state(size_t i) const {
    return read_checked(format_.state_bytes, first_state_ + i * format_.state_bytes,
                        state_checksums_[i]);
}

StateBytes StateFile::read_page(size_t i) const {
    return read_checked(format_.page_bytes, first_page_ + i * format_.page_bytes,
                        page_checksums_[i]);
}

SavedConversation StateFile::read_all() const {
    SavedConversation all = index_;
    for (size_t i = 0; i < all.states.size(); ++i)
        all.states[i].bytes = read_state(i);
    for (size_t i = 0; i < page_checksums_.size(); ++i)
        all.pages.push_back(read_page(i));
    return all;
}

}  // namespace oj
