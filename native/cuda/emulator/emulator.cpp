#include "cuda/emulator/emulator.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/types.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers on the stack that is left and takes them from the one entered.
extern "C" void oj_switch_stack(void** left, void* entered);
asm(R"(
.text
.type oj_switch_stack, @function
.hidden oj_switch_stack
.globl oj_switch_stack
oj_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size oj_switch_stack, .-oj_switch_stack
)");

namespace oj::cuda {

namespace emulator {

__thread const Place* place = nullptr;

namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr int warp_lanes = 32;

struct Copy {
    uint8_t* to;
    const uint8_t* from;
    int group;
};

enum class State { ready, in_warp, in_block, spinning, returned };

struct Fiber {
    Place place = {};
    void* stack_pointer = nullptr;
    State state = State::ready;
    const char* what = "";  // it waits for
    Site site = {};
    bool vote = false;  // result of the last block meeting
    std::vector<Copy> copies;
    int group = 0;  // of copies not yet committed
};

struct Warp {
    uint32_t ready = 0;  // lanes
    uint32_t arrived = 0;
    void* arguments[warp_lanes] = {};
    int listed = -1;  // place in the list of warps with ready lanes
};

struct Block {
    int arrived = 0;
    bool vote = false;
};

// Stacks of all fibers, kept for the next launch of this thread. Pages are taken when touched.
class Stacks {
public:
    ~Stacks() {
        if (memory_ != nullptr) munmap(memory_, bytes_);
    }

    uint8_t* reserve(size_t count) {
        if (count * stack_bytes > bytes_) {
            if (memory_ != nullptr) munmap(memory_, bytes_);
            bytes_ = count * stack_bytes;
            memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory_ == MAP_FAILED) {
                memory_ = nullptr;
                bytes_ = 0;
                throw EmulationError("no memory for the stacks of the emulated threads");
            }
        }
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(memory_, bytes_);  // frames that an error left behind
#endif
        return static_cast<uint8_t*>(memory_);
    }

private:
    void* memory_ = nullptr;
    size_t bytes_ = 0;
};

void run_fiber();

class Machine {
public:
    Machine(int n_blocks, size_t shared_bytes, uint64_t seed, const std::function<void()>& kernel,
            Stacks& stacks);

    void run();
    void run_kernel() { kernel_(); }
    [[noreturn]] void fiber_returned();

    void meet_warp(const char* what, Apply apply, void* mine, Site site);
    bool meet_block(bool vote, Site site);
    void spin(Site site);
    void stored() { idle_ = 0; }

    void copy_async(void* to, const void* from, Site site);
    void commit_copies() { ++fiber().group; }
    void wait_copies(int newest_left);

    [[noreturn]] void fail(const std::string& message) { throw EmulationError(message + report()); }
    void keep_error(const char* message) { error_ = message; }

private:
    Fiber& fiber() { return fibers_[running_]; }

    uint64_t random() {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return random_ * 0x2545f4914f6cdd1dull >> 16;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((random() & 0xffffffffu) * n >> 32); }

    void make_ready(int index);
    void unlist(Warp& warp);
    void wait(State state, const char* what, Site site);
    void yield();
    int choose();
    int choose_lane(int warp);
    void switch_to(int next);
    void leave_to_main();
    void land_some(Fiber& fiber);
    void check_same_site(const Fiber& other, const char* what, Site site);
    std::string report() const;

    const std::function<void()>& kernel_;
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::vector<Block> blocks_;
    std::vector<int> listed_;  // warps with ready lanes
    std::vector<int> spinning_;
    std::vector<uint8_t> shared_;
    size_t shared_bytes_;
    uint8_t* stacks_;
    void* main_pointer_ = nullptr;
    void* abandoned_ = nullptr;
    int running_ = -1;
    int returned_ = 0;
    int64_t idle_ = 0;  // turns of waiting loops since anything happened
    uint64_t random_;
    uint32_t stay_;  // of 256: how often the next thread is one of the same warp
    std::string error_;
#if defined(__SANITIZE_ADDRESS__)
    const void* main_stack_ = nullptr;
    size_t main_stack_bytes_ = 0;

public:
    void entered_fiber() {
        const void* from;
        size_t bytes;
        __sanitizer_finish_switch_fiber(nullptr, &from, &bytes);
        if (main_stack_ == nullptr) {
            main_stack_ = from;
            main_stack_bytes_ = bytes;
        }
    }
#else
public:
    void entered_fiber() {}
#endif
};

__thread Machine* machine = nullptr;

void run_fiber() {
    machine->entered_fiber();
    try {
        machine->run_kernel();
    } catch (const std::exception& error) {
        machine->keep_error(error.what());
    }
    machine->fiber_returned();
}

Machine::Machine(int n_blocks, size_t shared_bytes, uint64_t seed,
                 const std::function<void()>& kernel, Stacks& stacks)
    : kernel_(kernel),
      fibers_(static_cast<size_t>(n_blocks) * block_threads),
      warps_(static_cast<size_t>(n_blocks) * block_warps),
      blocks_(n_blocks),
      shared_bytes_((shared_bytes + 1023) / 1024 * 1024),
      stacks_(stacks.reserve(fibers_.size())),
      random_(seed * 0x9e3779b97f4a7c15ull + 0x1234567) {
    if (random_ == 0) random_ = 1;
    constexpr uint32_t stays[] = {0, 128, 240, 255, 256};
    stay_ = stays[below(5)];
    shared_.resize(shared_bytes_ * n_blocks + 1024);
    for (uint8_t& byte : shared_)
        byte = static_cast<uint8_t>(random());
    uintptr_t base = (reinterpret_cast<uintptr_t>(shared_.data()) + 1023) / 1024 * 1024;
    for (size_t i = 0; i < fibers_.size(); ++i) {
        int block = static_cast<int>(i / block_threads);
        fibers_[i].place = {block, n_blocks, static_cast<int>(i % block_threads),
                            reinterpret_cast<uint8_t*>(base + block * shared_bytes_)};
        // What oj_switch_stack pops: six registers and the address it returns to; then the stack is
        // as a call would have left it (16 k + 8).
        auto** top = reinterpret_cast<void**>(stacks_ + (i + 1) * stack_bytes) - 2;
        top[0] = reinterpret_cast<void*>(&run_fiber);
        top[1] = nullptr;
        std::memset(top - 6, 0, 6 * sizeof(void*));
        fibers_[i].stack_pointer = top - 6;
        make_ready(static_cast<int>(i));
    }
}

void Machine::run() {
    int first = choose();
    running_ = first;
    place = &fibers_[first].place;
#if defined(__SANITIZE_ADDRESS__)
    void* fake;
    __sanitizer_start_switch_fiber(&fake, stacks_ + first * stack_bytes, stack_bytes);
#endif
    oj_switch_stack(&main_pointer_, fibers_[first].stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    place = nullptr;
    if (!error_.empty()) throw EmulationError(error_);
}

void Machine::make_ready(int index) {
    fibers_[index].state = State::ready;
    int w = index / warp_lanes;
    Warp& warp = warps_[w];
    if (warp.ready == 0) {
        warp.listed = static_cast<int>(listed_.size());
        listed_.push_back(w);
    }
    warp.ready |= 1u << (index % warp_lanes);
}

void Machine::unlist(Warp& warp) {
    int last = listed_.back();
    listed_[warp.listed] = last;
    warps_[last].listed = warp.listed;
    listed_.pop_back();
    warp.listed = -1;
}

int Machine::choose_lane(int w) {
    Warp& warp = warps_[w];
    uint32_t start = below(warp_lanes);
    uint32_t turned = start == 0 ? warp.ready : warp.ready >> start | warp.ready << (32 - start);
    uint32_t lane = (__builtin_ctz(turned) + start) % warp_lanes;
    warp.ready &= ~(1u << lane);
    if (warp.ready == 0) unlist(warp);
    return w * warp_lanes + static_cast<int>(lane);
}

// The thread that runs next, or -1 when every thread has returned.
int Machine::choose() {
    if (!spinning_.empty() && (listed_.empty() || (random() & 63) == 0)) {
        ++idle_;
        if (idle_ > 20000000 ||
            (listed_.empty() && idle_ > 200 * static_cast<int64_t>(fibers_.size()))) {
            fail("deadlock: threads wait for a store that does not come");
        }
        uint32_t at = below(static_cast<uint32_t>(spinning_.size()));
        int index = spinning_[at];
        spinning_[at] = spinning_.back();
        spinning_.pop_back();
        return index;
    }
    if (listed_.empty()) {
        if (returned_ == static_cast<int>(fibers_.size())) return -1;
        fail("deadlock: no thread can go on");
    }
    int current = running_ / warp_lanes;
    bool stay = running_ >= 0 && warps_[current].ready != 0 && (random() & 255) < stay_;
    return choose_lane(stay ? current : listed_[below(static_cast<uint32_t>(listed_.size()))]);
}

void Machine::switch_to(int next) {
    if (next == running_) return;
    Fiber& left = fiber();
    running_ = next;
    place = &fibers_[next].place;
#if defined(__SANITIZE_ADDRESS__)
    void* fake;
    __sanitizer_start_switch_fiber(&fake, stacks_ + next * stack_bytes, stack_bytes);
    oj_switch_stack(&left.stack_pointer, fibers_[next].stack_pointer);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    oj_switch_stack(&left.stack_pointer, fibers_[next].stack_pointer);
#endif
}

void Machine::leave_to_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, main_stack_, main_stack_bytes_);
#endif
    oj_switch_stack(&abandoned_, main_pointer_);
}

void Machine::wait(State state, const char* what, Site site) {
    Fiber& mine = fiber();
    mine.state = state;
    mine.what = what;
    mine.site = site;
    if (!mine.copies.empty()) land_some(mine);
    switch_to(choose());
}

void Machine::yield() {
    make_ready(running_);
    int next = choose();
    switch_to(next);
}

void Machine::fiber_returned() {
    fiber().state = State::returned;
    ++returned_;
    idle_ = 0;
    int next = -1;
    if (error_.empty()) {
        try {
            next = choose();
        } catch (const EmulationError& error) {
            keep_error(error.what());
        }
    }
    if (next < 0) {
        leave_to_main();
    } else {
        switch_to(next);
    }
    __builtin_unreachable();
}

std::string place_name(const char* what, Site site) {
    const char* name = std::strrchr(site.file, '/');
    return std::string(what) + " at " + (name != nullptr ? name + 1 : site.file) + ":" +
           std::to_string(site.line);
}

// How many threads of which blocks wait where.
std::string Machine::report() const {
    std::map<std::string, std::map<int, int>> counts;
    for (const Fiber& fiber : fibers_) {
        std::string where = fiber.state == State::returned ? "have returned"
                            : fiber.state == State::ready  ? "can run"
                                                           : place_name(fiber.what, fiber.site);
        ++counts[where][fiber.place.block];
    }
    std::string text;
    for (const auto& [where, blocks] : counts) {
        text += "\n  " + where + ":";
        for (const auto& [block, count] : blocks) {
            text += " block " + std::to_string(block) + " (" + std::to_string(count) + " threads)";
        }
    }
    return text;
}

void Machine::check_same_site(const Fiber& other, const char* what, Site site) {
    if (other.site.line == site.line && std::strcmp(other.site.file, site.file) == 0 &&
        std::strcmp(other.what, what) == 0) {
        return;
    }
    const Place& mine = fiber().place;
    fail("collective that threads reach at different places: block " + std::to_string(mine.block) +
         " thread " + std::to_string(mine.thread) + " is in " + place_name(what, site) +
         ", thread " + std::to_string(other.place.thread) + " in " +
         place_name(other.what, other.site));
}

void Machine::meet_warp(const char* what, Apply apply, void* mine, Site site) {
    int first = running_ / warp_lanes * warp_lanes;
    Warp& warp = warps_[running_ / warp_lanes];
    int lane = running_ - first;
    if (warp.arrived != 0)
        check_same_site(fibers_[first + __builtin_ctz(warp.arrived)], what, site);
    warp.arguments[lane] = mine;
    warp.arrived |= 1u << lane;
    if (warp.arrived != 0xffffffffu) {
        wait(State::in_warp, what, site);
        return;
    }
    warp.arrived = 0;
    apply(warp.arguments);
    for (int i = 0; i < warp_lanes; ++i) {
        if (i != lane) make_ready(first + i);
    }
    if (!fiber().copies.empty()) land_some(fiber());
    yield();
}

bool Machine::meet_block(bool vote, Site site) {
    const char* what = "block_sync";
    int first = running_ / block_threads * block_threads;
    Block& block = blocks_[running_ / block_threads];
    if (block.arrived != 0) {
        int other = first;  // any thread that waits here; the rest of the block comes to the same
        while (fibers_[other].state != State::in_block)
            ++other;
        check_same_site(fibers_[other], what, site);
    }
    block.vote = block.vote || vote;
    if (++block.arrived < block_threads) {
        wait(State::in_block, what, site);
        return fiber().vote;
    }
    bool result = block.vote;
    block = {};
    for (int i = first; i < first + block_threads; ++i) {
        fibers_[i].vote = result;
        if (i != running_) make_ready(i);
    }
    yield();
    return result;
}

void Machine::spin(Site site) {
    spinning_.push_back(running_);
    wait(State::spinning, "a waiting loop", site);
}

void Machine::copy_async(void* to, const void* from, Site site) {
    Fiber& mine = fiber();
    auto* target = static_cast<uint8_t*>(to);
    bool inside = target >= mine.place.shared && target + 16 <= mine.place.shared + shared_bytes_;
    bool aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
    if (!inside || !aligned) {
        fail(std::string("asynchronous copy ") + (inside ? "misaligned: " : "out of range: ") +
             place_name("copy_async", site));
    }
    uint64_t rubbish[2] = {random(), random()};
    std::memcpy(target, rubbish, 16);
    mine.copies.push_back({target, static_cast<const uint8_t*>(from), mine.group});
}

void Machine::wait_copies(int newest_left) {
    Fiber& mine = fiber();
    size_t left = 0;
    for (const Copy& copy : mine.copies) {
        if (copy.group < mine.group - newest_left) {
            std::memcpy(copy.to, copy.from, 16);
        } else {
            mine.copies[left++] = copy;
        }
    }
    mine.copies.resize(left);
}

// Some of a thread's copies arrive, in any order.
void Machine::land_some(Fiber& fiber) {
    if ((random() & 7) != 0) return;
    for (uint32_t n = below(static_cast<uint32_t>(fiber.copies.size()) + 1); n > 0; --n) {
        Copy& copy = fiber.copies[below(static_cast<uint32_t>(fiber.copies.size()))];
        std::memcpy(copy.to, copy.from, 16);
        copy = fiber.copies.back();
        fiber.copies.pop_back();
    }
}

}  // namespace

void meet_warp(const char* what, Apply apply, void* mine, Site site) {
    machine->meet_warp(what, apply, mine, site);
}

bool meet_block(bool vote, Site site) {
    return machine->meet_block(vote, site);
}

void spin(Site site) {
    machine->spin(site);
}

void stored() {
    machine->stored();
}

void copy_async(void* shared, const void* global, Site site) {
    machine->copy_async(shared, global, site);
}

void commit_copies() {
    machine->commit_copies();
}

void wait_copies(int newest_left) {
    machine->wait_copies(newest_left);
}

void check_aligned(const void* pointer, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0 && machine != nullptr) {
        machine->fail("misaligned access of " + std::to_string(bytes) + " bytes");
    }
}

}  // namespace emulator

void emulate(int n_blocks, size_t shared_bytes, uint64_t seed,
             const std::function<void()>& kernel) {
    static thread_local emulator::Stacks stacks;
    emulator::Machine machine(n_blocks, shared_bytes, seed, kernel, stacks);
    emulator::machine = &machine;
    try {
        machine.run();
    } catch (...) {
        emulator::machine = nullptr;
        throw;
    }
    emulator::machine = nullptr;
}

}  // namespace oj::cuda
