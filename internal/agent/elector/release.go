package elector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// The API server knows no token of a pod that was deleted by force: such a member shuts its
// server down in order, and cannot say so. Another member writes the release for it, as
// the same replacement of the same state of the Lease. So to the protocol it is the
// member's own write.

// released is a release that another member wrote.
type released struct {
	volume  string
	version lease.Version
	err     error
}

// releaseByPeer has another member write a release that was refused to this one, and why.
// Its answer is that of WriteLease.
func (c *core) releaseByPeer(ctx context.Context, base lease.Version, r lease.Record, refused error) (lease.Answer, lease.Version, error) {
	done, failed := c.askRelease(ctx, base, r)
	if failed != nil {
		err := fmt.Errorf("%w; %w", refused, failed)
		c.mail.post(func() {
			c.journal.writeLine(slog.LevelWarn, "the Lease is not released: another member waits until it expires", "error", err.Error())
		})
		return lease.Forbidden, lease.Version{}, err
	}
	c.mail.post(func() {
		c.journal.writeLine(slog.LevelInfo, "another member has written the release of the Lease", "volume", done.volume)
	})
	return lease.Done, done.version, nil
}

// askRelease asks all other members that may lead to write a release, and takes the first
// that has. The error is that of each of them.
func (c *core) askRelease(ctx context.Context, base lease.Version, r lease.Record) (released, error) {
	var asked []string
	for _, volume := range r.Volumes {
		if volume != c.o.Recorded.VolumeID {
			asked = append(asked, volume)
		}
	}
	answers := make(chan released, len(asked))
	for _, volume := range asked {
		c.work.Go(func() {
			message := postgresapi.ReleaseRequest{
				Term: r.Term, HolderUID: c.o.Identity.PodUID, Shutdown: encodePosition(*r.Shutdown), Successor: r.Successor,
				Lease: postgresapi.ObservedLease{UID: base.UID, ResourceVersion: base.Resource, Term: r.Term, Revision: r.Age().Revision},
			}
			message.From = c.o.Recorded.VolumeID
			var reply postgresapi.ReleaseReply
			err := c.exchange(ctx, postgresapi.ReleasePath, volume, &message.ElectionHeader, &message, &reply, &reply.ElectionHeader)
			answers <- released{volume, lease.Version{UID: reply.Lease.UID, Resource: reply.Lease.ResourceVersion}, err}
		})
	}
	failed := errors.New("no other member writes the release")
	for range asked {
		answer := <-answers
		if answer.err == nil {
			return answer, nil
		}
		failed = fmt.Errorf("%w: volume %s: %w", failed, answer.volume, answer.err)
	}
	return released{}, failed
}

// serveRelease writes the release of the sender's term. It is written only over the state of
// the Lease that the sender names, and only if the sender holds it in that state.
func (e *Elector) serveRelease(r *http.Request) (any, error) {
	var message postgresapi.ReleaseRequest
	if err := e.readMessage(r, &message, &message.ElectionHeader); err != nil {
		return nil, err
	}
	if message.From == "" || message.HolderUID == "" || message.Term < 1 || message.Lease.UID == "" || message.Lease.ResourceVersion == "" {
		return nil, &statusError{http.StatusBadRequest, errInvalid}
	}
	if view, _ := e.ReadView(); view.Leader.Term > message.Term {
		return nil, &statusError{http.StatusConflict, fmt.Errorf("this member knows term %d: the Lease of term %d is of an earlier state", view.Leader.Term, message.Term)}
	}
	// Another member may have answered first, or the sender be gone: what was begun is
	// brought to its end all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), e.core.o.Config.Timing.RequestTimeout())
	defer cancel()
	reading, err := e.core.o.Lease.ReadLease(ctx)
	if reading.Answer != lease.Done && reading.Answer != lease.Missing {
		return nil, fmt.Errorf("the Lease is not read: %w", err)
	}
	release, err := releaseFor(message, reading)
	if err != nil {
		return nil, &statusError{http.StatusConflict, err}
	}
	answer, version, err := e.core.o.Lease.WriteLease(ctx, reading.Version, release)
	if answer != lease.Done {
		code := http.StatusServiceUnavailable
		if answer == lease.Conflict || answer == lease.Missing {
			code = http.StatusConflict
		}
		return nil, &statusError{code, err}
	}
	e.mail.post(func() {
		e.core.journal.writeLine(slog.LevelInfo, "released the Lease for its holder, whom the API server no longer knows", "pod", message.Pod, "term", message.Term)
		e.core.step(election.LeaseChanged{}, replies{})
	})
	return postgresapi.ReleaseReply{
		ElectionHeader: e.answerHeader(message.ElectionHeader),
		Lease:          postgresapi.ObservedLease{UID: version.UID, ResourceVersion: version.Resource, Term: release.Term, Revision: release.Age().Revision},
	}, nil
}

// releaseFor is the release that the sender asks for, if the Lease is in the state that the
// sender names, which holds it.
func releaseFor(message postgresapi.ReleaseRequest, reading lease.Reading) (lease.Record, error) {
	named, record := message.Lease, reading.Record
	if reading.Version != (lease.Version{UID: named.UID, Resource: named.ResourceVersion}) || record.Age() != (lease.Age{Term: named.Term, Revision: named.Revision}) {
		return record, fmt.Errorf("the Lease is not in the state %s of term %d, revision %d", named.ResourceVersion, named.Term, named.Revision)
	}
	if record.Validate() != nil || record.HolderVolume != message.From || record.HolderPod != message.Pod {
		return record, fmt.Errorf("the Lease is not held by pod %s on volume %s", message.Pod, message.From)
	}
	end := decodePosition(message.Shutdown)
	if end.LSN == 0 || record.Acknowledged.Newer(end) {
		return record, fmt.Errorf("the Lease names WAL beyond the end %d of the shutdown", end.LSN)
	}
	return record.Release(message.HolderUID, message.Term, end, message.Successor)
}
