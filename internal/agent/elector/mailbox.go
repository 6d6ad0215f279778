package elector

import "sync"

// mailbox holds what the loop has to do. It has no limit: neither those who post nor
// the loop ever wait for each other.
type mailbox struct {
	mu      sync.Mutex
	waiting []func()
	// ready has one element while something waits.
	ready chan struct{}
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// post leaves something to do.
func (m *mailbox) post(do func()) {
	m.mu.Lock()
	m.waiting = append(m.waiting, do)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// takeAll takes what waits, in the order in which it was posted.
func (m *mailbox) takeAll() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := m.waiting
	m.waiting = nil
	return waiting
}
