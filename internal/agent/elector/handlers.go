package elector

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

const (
	// messageLimit bounds a message of another member, in bytes.
	messageLimit = 64 << 10
	// ballotLimit is how many repetitions of one request may wait for its vote.
	ballotLimit = 8
)

// replies take the answer to the client that an input came from; nil where there is
// none. They have space for it.
type replies struct {
	vote    chan<- election.VoteReply
	confirm chan<- election.ConfirmReply
}

func (r replies) answerConfirm(reply election.ConfirmReply) {
	if r.confirm != nil {
		r.confirm <- reply
	}
}

// ballot is a request for a vote that the member is about to grant, with the clients
// that wait for it: the candidate may ask again.
type ballot struct {
	request election.VoteRequest
	clients []chan<- election.VoteReply
}

// takeVoteRequest has the member answer a request. One that is repeated while its vote
// is prepared waits for the same vote: as another request it would be refused.
func (c *core) takeVoteRequest(r election.VoteRequest, client chan<- election.VoteReply) {
	if b := c.ballot; b != nil && isSameRequest(b.request, r) {
		if len(b.clients) < ballotLimit {
			b.clients = append(b.clients, client)
		}
		return
	}
	for _, e := range c.step(r, replies{vote: client}) {
		if _, answered := e.(election.Vote); answered {
			return
		}
	}
	c.ballot = &ballot{r, []chan<- election.VoteReply{client}}
}

func isSameRequest(a, b election.VoteRequest) bool {
	return a.From == b.From && a.Term == b.Term && a.Timeline == b.Timeline && a.Base == b.Base && a.BaseAge == b.BaseAge && a.Flushed == b.Flushed
}

// answerVote sends a vote to the client of this step, or to those that have waited for
// it. A vote for which no client waits any more is lost, like an answer.
func (c *core) answerVote(e election.Vote, r replies) {
	if r.vote != nil {
		r.vote <- e.Reply
		return
	}
	b := c.ballot
	if b == nil || b.request.From != e.To || b.request.Term != e.Reply.Term {
		return
	}
	c.ballot = nil
	for _, client := range b.clients {
		client <- e.Reply
	}
}

// statusError is an error with the status that answers it.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }

// newHandler answers messages of the cluster's other members.
func (e *Elector) newHandler(serve func(*http.Request) (any, error)) http.Handler {
	return statusserver.RequirePeer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "messages of the election are sent by POST", http.StatusMethodNotAllowed)
			return
		}
		reply, err := serve(r)
		var status *statusError
		switch {
		case errors.As(err, &status):
			http.Error(w, err.Error(), status.code)
			return
		case err != nil: // the member does not answer in time
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply)
	}))
}

// readMessage reads a message for this member and checks its sender.
func (e *Elector) readMessage(r *http.Request, message any, header *postgresapi.ElectionHeader) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, messageLimit))
	if err == nil {
		err = json.Unmarshal(text, message)
	}
	if err != nil {
		return &statusError{http.StatusBadRequest, fmt.Errorf("the message cannot be read: %w", err)}
	}
	if header.Format != postgresapi.ElectionFormat {
		return &statusError{http.StatusBadRequest, fmt.Errorf("the message has format %d, and this agent knows %d", header.Format, postgresapi.ElectionFormat)}
	}
	if own := e.core.o.Recorded.VolumeID; header.To != own {
		return &statusError{http.StatusMisdirectedRequest, fmt.Errorf("this member runs on volume %s, not on %s", own, header.To)}
	}
	if err := e.checkSender(r.TLS.PeerCertificates[0], *header); err != nil {
		return &statusError{http.StatusForbidden, err}
	}
	return nil
}

// checkSender refuses a message that is not what its sender can say. All members of a
// cluster share one certificate, so it proves that a member of this cluster sends, and
// not which one: its names have to be those of the pod that the sender claims. Which
// volume that pod runs on is known from its own reports, if at all.
func (e *Elector) checkSender(certificate *x509.Certificate, header postgresapi.ElectionHeader) error {
	o := e.core.o
	if err := certificate.VerifyHostname(o.Identity.Host(header.Pod)); err != nil {
		return fmt.Errorf("the sender is not pod %s of this cluster: %w", header.Pod, err)
	}
	if header.From == o.Recorded.VolumeID {
		return fmt.Errorf("pod %s claims volume %s, which this member runs on: one is a copy of the other. Delete the copy's volume and pod", header.Pod, header.From)
	}
	if pod, known := o.Directory.FindPod(header.From); known && pod != header.Pod {
		return fmt.Errorf("volume %s is that of pod %s, not of %s", header.From, pod, header.Pod)
	}
	return nil
}

// answerHeader is that of an answer to a message.
func (e *Elector) answerHeader(asked postgresapi.ElectionHeader) postgresapi.ElectionHeader {
	o := e.core.o
	return postgresapi.ElectionHeader{Format: postgresapi.ElectionFormat, Pod: o.Identity.Pod, From: o.Recorded.VolumeID, To: asked.From}
}

// serveVote answers a request for a vote as soon as the vote is given. What the volume
// holds is measured first, beside the loop.
func (e *Elector) serveVote(r *http.Request) (any, error) {
	var message postgresapi.VoteRequest
	if err := e.readMessage(r, &message, &message.ElectionHeader); err != nil {
		return nil, err
	}
	request, err := decodeVoteRequest(message)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, err}
	}
	ctx, cancel := context.WithTimeout(r.Context(), e.core.o.Config.Timing.VoteWait())
	defer cancel()
	if request.WAL, err = e.core.o.Server.ReadWAL(ctx); err != nil {
		return nil, fmt.Errorf("what this member's volume holds is unknown: %w", err)
	}
	answer := make(chan election.VoteReply, 1)
	e.mail.post(func() { e.core.takeVoteRequest(request, answer) })
	reply, err := awaitReply(ctx, e, answer)
	if err != nil {
		return nil, err
	}
	wire := encodeVoteReply(reply)
	wire.ElectionHeader = e.answerHeader(message.ElectionHeader)
	return wire, nil
}

// serveConfirm answers a request for a confirmation.
func (e *Elector) serveConfirm(r *http.Request) (any, error) {
	var message postgresapi.ConfirmRequest
	if err := e.readMessage(r, &message, &message.ElectionHeader); err != nil {
		return nil, err
	}
	request, err := decodeConfirmRequest(message)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, err}
	}
	ctx, cancel := context.WithTimeout(r.Context(), e.core.o.Config.Timing.Renewal())
	defer cancel()
	answer := make(chan election.ConfirmReply, 1)
	e.mail.post(func() { e.core.step(request, replies{confirm: answer}) })
	reply, err := awaitReply(ctx, e, answer)
	if err != nil {
		return nil, err
	}
	wire := postgresapi.ConfirmReply{Term: reply.Term, Sent: int64(reply.Sent), Confirmed: reply.Confirmed, Promised: int64(reply.Promised)}
	wire.ElectionHeader = e.answerHeader(message.ElectionHeader)
	return wire, nil
}

func awaitReply[R any](ctx context.Context, e *Elector, answer <-chan R) (R, error) {
	var none R
	select {
	case reply := <-answer:
		return reply, nil
	case <-ctx.Done():
		return none, errors.New("the member does not answer in time")
	case <-e.ended:
		return none, ErrEnded
	}
}
