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
    // A request that ran already: its client's next, and its client the next of all. It stays the
    // caller's if there is no memory.
    void push_front(std::unique_ptr<Conversation>&& request);

    // The oldest request of every client, in the order in which they may be admitted.
    std::vector<Conversation*> heads() const;
    // Takes a head out; its client goes to the end of the round.
    std::unique_ptr<Conversation> pop(const Conversation* head);

    // Drops every request for which `gone` holds; it is called once for each.
    template <typename Predicate>
    void erase_if(Predicate gone);

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
void RequestQueue::erase_if(Predicate gone) {
    for (auto client = round_.begin(); client != round_.end();) {
        auto& requests = client->requests;
        for (auto request = requests.begin(); request != requests.end();) {
            const bool is_gone = gone(**request);
            size_ -= is_gone;
            request = is_gone ? requests.erase(request) : request + 1;
        }
        client = requests.empty() ? round_.erase(client) : std::next(client);
    }
}

}  // namespace oj
