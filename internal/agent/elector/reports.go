package elector

import (
	"context"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Reports is what the Server reports, as it happens. The methods that begin with Report
// return at once, and may be called from within a method of the Server.
type Reports struct{ e *Elector }

func (r Reports) post(in election.Input) {
	r.e.mail.post(func() { r.e.core.step(in, replies{}) })
}

// ReportReceiverStopped answers StopReceiver: no more WAL is received. The WAL was
// measured afterwards.
func (r Reports) ReportReceiverStopped(id int64, w election.WAL) {
	r.e.mail.post(func() {
		if id == r.e.core.stops {
			r.e.core.step(election.ReceiverStopped{WAL: w}, replies{})
		}
	})
}

// ReportPromoted says that the server writes the timeline of Promote.
func (r Reports) ReportPromoted(term, timeline int64) {
	r.post(election.Promoted{Term: term, Timeline: timeline})
}

// ReportFailed says that the server of a term cannot be promoted, ended, or hangs.
func (r Reports) ReportFailed(term int64) { r.post(election.ServerFailed{Term: term}) }

// ReportStopped says that no process of the term's server is left after StopServer. The
// position is the end of its shutdown checkpoint's record, not the beginning.
func (r Reports) ReportStopped(term int64, end lease.Position) {
	r.e.mail.post(func() { r.e.core.endServer(term, end) })
}

// ReportFenced says that no process is left that Fence was to kill.
func (r Reports) ReportFenced(id int64) {
	r.e.mail.post(func() { r.e.core.endFence(id) })
}

// ReportStreamed says that another member has received a record of the timeline.
func (r Reports) ReportStreamed(timeline int64) { r.post(election.Streamed{Timeline: timeline}) }

// ReportAcknowledged says up to where every commit of the primary was acknowledged:
// what it has flushed, and in synchronous mode what its quorum has.
func (r Reports) ReportAcknowledged(p lease.Position) {
	r.post(election.Acknowledged{Position: p})
}

// ReportQuorumSet answers SetQuorum.
func (r Reports) ReportQuorumSet(id int64) { r.post(election.QuorumSet{ID: id}) }

// Volume is the ID of the member's volume.
func (r Reports) Volume() string { return r.e.core.o.Recorded.VolumeID }

// ReportHeld says why what the volume holds is not known, or may not be used; empty
// when it may. A member whose volume is whole and takes records votes all the same.
func (r Reports) ReportHeld(h election.Held) { r.post(h) }

// RecordTimeline records that the receiver is about to write a timeline to the volume.
// When it returns without an error, the record is on the volume and the receiver may.
func (r Reports) RecordTimeline(ctx context.Context, timeline int64) error {
	return r.record(ctx, election.Received{Timeline: timeline})
}

// BeginRewind records that the data directory is about to be rewound or replaced. When
// it returns without an error, the record is on the volume and the directory may be
// changed.
func (r Reports) BeginRewind(ctx context.Context) error {
	return r.record(ctx, election.RewindBegun{})
}

// EndRewind records that the data directory is complete again, with the system
// identifier and the timelines of its source. When it returns without an error, the
// record is on the volume. After an error the data is complete all the same, and the
// call is to be repeated.
func (r Reports) EndRewind(ctx context.Context, system string, timelines []int64) error {
	return r.record(ctx, election.RewindEnded{SystemIdentifier: system, Timelines: timelines})
}

// record waits until the volume has what the input changed.
func (r Reports) record(ctx context.Context, in election.Input) error {
	done := make(chan error, 1)
	r.e.mail.post(func() {
		r.e.core.step(in, replies{})
		r.e.core.awaitVolume(done)
	})
	return r.e.await(ctx, done)
}
