package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// DurationReport is what another member reported of the duration of the Lease.
type DurationReport struct {
	// Volume of the member, and Term of the newest record that it knows.
	Volume string
	Term   int64
	// Duration of that record, as it is on the volume; 0 for the default one, also of an
	// agent that knows of no other.
	Duration time.Duration
	// Asked is the clock of the member that asked, before it did.
	Asked time.Duration
}

// DurationsKnown replaces what the other members reported. It says something to the holder
// of the Lease only.
type DurationsKnown struct{ Reports []DurationReport }

func (DurationsKnown) isInput() {}

// holds reports whether the member holds the Lease, or may.
func (m member) holds() bool {
	return m.IsPrimary() || m.Phase == Claiming || m.Phase == Unsure || m.Phase == Releasing
}

// findCovered is the longest duration that the holder may rely on: every other member that
// may lead has reported since the last change of it that it has read it, or
// knew it in the term before. A member that
// does not know it waits for a shorter one: its agent is older, or the API server was set
// back before it read the Lease.
func (m member) findCovered() time.Duration {
	covered := lease.MaxDuration
	for _, volume := range slices.Concat(m.lease.record.Volumes, m.requests.listAdmitted()) {
		if volume != m.Disk.VolumeID {
			covered = min(covered, m.findReported(volume))
		}
	}
	return covered
}

func (m member) findReported(volume string) time.Duration {
	reported := time.Duration(0)
	for _, r := range m.durations {
		switch {
		case r.Volume != volume:
		case r.Term == m.term && r.Asked >= m.durationAt:
			reported = max(reported, r.Duration)
		case r.Term == m.replaced.Term && r.Term > 0: // it went away in the term before, which ended with that duration
			reported = max(reported, min(r.Duration, m.replaced.Duration))
		default:
			return lease.DefaultDuration
		}
	}
	return cmp.Or(reported, lease.DefaultDuration)
}

// recordDuration notes when the holder wrote another duration: what was reported before
// says nothing of it.
func (m *member) recordDuration(now time.Duration, written lease.Record) {
	if written.Duration != m.lease.record.Duration {
		m.durationAt = now
	}
}

// confirmShorter returns a record as it is to be known. A shorter duration than before in
// one term counts once the Lease was renewed with it: the API server may have been set back
// to a time before the longer one, on which the holder still relies.
func (m *member) confirmShorter(r lease.Reading) lease.Record {
	record, known, first := r.Record, m.Disk.Known, m.lease.shortened
	wanted, before := cmp.Or(record.Duration, lease.DefaultDuration), cmp.Or(known.Duration, lease.DefaultDuration)
	if record.Term != known.Term || wanted >= before {
		m.lease.shortened = lease.Version{}
		return record
	}
	if first.UID == r.Version.UID && first.Resource != r.Version.Resource {
		return record
	}
	m.lease.shortened = r.Version
	record.Duration = known.Duration
	return record
}
