package postgres

import (
	"net"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// primaryLocation is at which address a replica's settings should look for the
// primary. An empty address is the pod's name, and so is the zero value.
type primaryLocation struct {
	inForce string // in the settings
	found   string // on the Lease
	holder  string // the pod, by UID, that the Lease gave it for
	// answered is the UID of the pod that last said that it is the primary.
	answered string
	// streams says that a stream was at work when it was checked last, and
	// source from which pod, if that is known.
	streams bool
	source  string
}

// recordLease takes in what the Lease says.
func (w *primaryLocation) recordLease(holder, address string) {
	if net.ParseIP(address) != nil {
		w.holder, w.found = holder, address
	}
}

// recordAnswer takes in who says that it is the primary: what the Lease said of
// another pod is old.
func (w *primaryLocation) recordAnswer(uid string) {
	if w.answered = uid; w.holder != uid {
		w.holder, w.found = "", ""
	}
}

// recordStream takes in whether a stream is at work.
func (w *primaryLocation) recordStream(works bool) {
	switch {
	case !works:
		w.source = ""
	case w.source == "":
		w.source = w.answered
	}
	w.streams = works
}

// beginRun is the start of a server: nothing streams, and all that is known goes
// into its settings.
func (w *primaryLocation) beginRun() {
	w.inForce = w.found
	w.recordStream(false)
}

// nextAddress is the address to take up, if another than the one in force is to be.
// That interrupts a stream, so one that works is left alone, unless it comes
// from a pod that the holder of the Lease has replaced: that pod may be gone
// without a word, and the stream only looks alive.
func (w *primaryLocation) nextAddress() (string, bool) {
	switch {
	case w.found == w.inForce:
		return "", false
	case !w.streams:
		return w.found, true
	default:
		return w.found, w.holder != "" && w.source != "" && w.holder != w.source
	}
}

// withLocation changes or reads what is known, for the goroutines that observe and
// that configure.
func (a *postgresAgent) withLocation(do func(*primaryLocation)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do(&a.location)
}

// primaryAddress is where the settings look for the primary; mostly empty, for
// the Lease is only asked when the primary does not answer.
func (a *postgresAgent) primaryAddress() (address string) {
	a.withLocation(func(w *primaryLocation) { address = w.inForce })
	return address
}

// locatePrimary takes in where the Lease says that the primary is.
func (a *postgresAgent) locatePrimary(record leaseclient.Record) {
	if record.HolderPod != a.knownPrimary() {
		return
	}
	a.peers.Locate(record.HolderPod, record.Address)
	a.withLocation(func(w *primaryLocation) { w.recordLease(record.HolderUID, record.Address) })
}

// recordPrimary takes in an answer of the primary.
func (a *postgresAgent) recordPrimary(status agentapi.Status) {
	a.withLocation(func(w *primaryLocation) { w.recordAnswer(status.PodUID) })
}

// watchStream takes in what the database showed, and has the settings
// changed where the primary is to be looked for elsewhere.
func (a *postgresAgent) watchStream(receiving bool) {
	var due bool
	a.withLocation(func(w *primaryLocation) {
		w.recordStream(receiving)
		_, due = w.nextAddress()
	})
	if !due {
		return
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}
