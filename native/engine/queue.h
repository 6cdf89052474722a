// Requests that wait for admission: round-robin over clients, oldest first in each.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/conversation.h"

namespace oj {

class RequestQueue {
public:
    RequestQueue(int32_t max_all, int32_t max_client);

    // Throws oj::Error OJ_ERR_BUSY, naming the limit, when the queue or the client's part is full.
    void push(std::unique_ptr<Conversation> request);
    // A request that ran already: its client's next, and its client the next of all.
    void push_front(std::unique_ptr<Conversation> request);

    // The oldest request of every client, in the order in which they may be admitted.
    std::vector<Conversation*> heads() const;
    // Takes a head out; its client goes to the end of the round.
    std::unique_ptr<Conversation> pop(const Conversation* head);

    // Takes out every request for which `gone` holds.
    template <typename Predicate>
    std::vector<std::unique_ptr<Conversation>> remove_if(Predicate gone);

    // NULL if it is not waiting.
    Conversation* find(uint64_t id) const;

    int32_t size() const { return size_; }

private:
    struct Client {
        std::string name;
        std::deque<std::unique_ptr<Conversation>> requests;  // never empty
    };

    std::list<Client>::iterator find_client(const std::string& name);

    int32_t max_all_;
    int32_t max_client_;
    int32_t size_ = 0;
    std::list<Client> round_;
};

template <typename Predicate>
std::vector<std::unique_ptr<Conversation>> RequestQueue::remove_if(Predicate gone) {
    std::vector<std::unique_ptr<Conversation>> removed;
    for (auto client = round_.begin(); client != round_.end();) {
        std::deque<std::unique_ptr<Conversation>> kept;
        for (auto& request : client->requests)
            (gone(*request) ? removed.emplace_back() : kept.emplace_back()) = std::move(request);
        client->requests = std::move(kept);
        client = client->requests.empty() ? round_.erase(client) : std::next(client);
    }
    size_ -= static_cast<int32_t>(removed.size());
    return removed;
}

}  // namespace oj
