// Stop strings over the bytes of generated tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openjet.h"

namespace oj {

// A generated token on its way to an event.
struct OutputToken {
    int32_t id;
    int32_t keep;  // see oj_event
    oj_logprob logprob;
};

// Looks for stop strings in visible text and holds back the tokens that may begin one. A match is
// the string that is complete first as bytes arrive; which tokens they came in does not matter.
class StopMatcher {
public:
    // spans: token ids that open and close hidden text; `open_span` is open already, or -1.
    StopMatcher(std::vector<std::string> stops, std::vector<std::pair<int32_t, int32_t>> spans,
                int32_t open_span);

    // Takes the next token and appends to `out` those that are decided. Returns the index of the
    // stop string that this token completed, or -1; after a match everything is in `out`.
    int32_t feed(const OutputToken& token, std::string_view bytes, std::vector<OutputToken>* out);

    // No more text: what is held back is text after all.
    void flush(std::vector<OutputToken>* out);

private:
    struct Held {
        OutputToken token;
        size_t begin, end;  // of its bytes in text_
    };
    struct Match {
        int32_t stop;
        size_t begin;
    };

    bool is_hidden(int32_t id, std::vector<OutputToken>* out);
    Match find() const;
    size_t possible_start() const;
    void release(size_t end, std::vector<OutputToken>* out);

    std::vector<std::string> stops_;
    std::vector<std::pair<int32_t, int32_t>> spans_;
    int32_t open_span_;
    std::string text_;  // of the tokens held back
    std::vector<Held> held_;
};

}  // namespace oj
