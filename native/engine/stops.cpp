#include "engine/stops.h"

#include <algorithm>

namespace oj {

StopMatcher::StopMatcher(std::vector<std::string> stops,
                         std::vector<std::pair<int32_t, int32_t>> spans, int32_t open_span)
    : stops_(std::move(stops)), spans_(std::move(spans)), open_span_(open_span) {}

int32_t StopMatcher::feed(const OutputToken& token, std::string_view bytes,
                          std::vector<OutputToken>* out) {
    if (stops_.empty() || is_hidden(token.id, out)) {
        out->push_back(token);
        return -1;
    }
    held_.push_back({token, text_.size(), text_.size() + bytes.size()});
    text_.append(bytes);
    const Match match = find();
    if (match.stop < 0) {
        release(possible_start(), out);
        return -1;
    }
    for (Held& held : held_) {
        if (held.end > match.begin) {
            held.token.keep =
                held.begin < match.begin ? static_cast<int32_t>(match.begin - held.begin) : 0;
        }
    }
    flush(out);
    return match.stop;
}

void StopMatcher::flush(std::vector<OutputToken>* out) {
    for (const Held& held : held_)
        out->push_back(held.token);
    held_.clear();
    text_.clear();
}

// Follows hidden spans; what was held back when one opens is text.
bool StopMatcher::is_hidden(int32_t id, std::vector<OutputToken>* out) {
    if (open_span_ >= 0) {
        if (id == spans_[open_span_].second) open_span_ = -1;
        return true;
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
        if (id != spans_[i].first) continue;
        open_span_ = static_cast<int32_t>(i);
        flush(out);
        return true;
    }
    return false;
}

// The stop string that ends first; of several, the one that begins first.
StopMatcher::Match StopMatcher::find() const {
    Match best{-1, 0};
    size_t best_end = std::string::npos;
    for (size_t i = 0; i < stops_.size(); ++i) {
        const size_t begin = text_.find(stops_[i]);
        if (begin == std::string::npos) continue;
        const size_t end = begin + stops_[i].size();
        if (end < best_end || (end == best_end && begin < best.begin)) {
            best = {static_cast<int32_t>(i), begin};
            best_end = end;
        }
    }
    return best;
}

// Where the longest end of the text begins that some stop string starts with.
size_t StopMatcher::possible_start() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
        for (size_t n = std::min(stop.size() - 1, text_.size()); n > longest; --n) {
            if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) longest = n;
        }
    }
    return text_.size() - longest;
}

// Publishes the tokens whose bytes all lie before `end`.
void StopMatcher::release(size_t end, std::vector<OutputToken>* out) {
    size_t n = 0;
    while (n < held_.size() && held_[n].end <= end)
        out->push_back(held_[n++].token);
    if (n == 0) return;
    const size_t cut = n < held_.size() ? held_[n].begin : text_.size();
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(n));
    text_.erase(0, cut);
    for (Held& held : held_) {
        held.begin -= cut;
        held.end -= cut;
    }
}

}  // namespace oj
