package postgres

import (
	"net"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// whereabouts tells a replica at which address its settings should look for
// the primary. An empty address is the pod's name, and so is the zero value.
type whereabouts struct {
	inForce string // in the settings
	found   string // on the Lease
	holder  string // the pod, by UID, that the Lease gave it for
	// answered is the UID of the pod that last said that it is the primary.
	answered string
	// streams says that a stream was at work when it was looked for last, and
	// source from which pod, if that is known.
	streams bool
	source  string
}

// lease takes in what the Lease says.
func (w *whereabouts) lease(holder, address string) {
	if net.ParseIP(address) != nil {
		w.holder, w.found = holder, address
	}
}

// answer takes in who says that it is the primary: what the Lease said of
// another pod is old.
func (w *whereabouts) answer(uid string) {
	if w.answered = uid; w.holder != uid {
		w.holder, w.found = "", ""
	}
}

// stream takes in whether a stream is at work.
func (w *whereabouts) stream(works bool) {
	switch {
	case !works:
		w.source = ""
	case w.source == "":
		w.source = w.answered
	}
	w.streams = works
}

// begin is the start of a server: nothing streams, and all that is known goes
// into its settings.
func (w *whereabouts) begin() {
	w.inForce = w.found
	w.stream(false)
}

// next is the address to take up, if another than the one in force is to be.
// That interrupts a stream, so one that works is left alone, unless it comes
// from a pod that the holder of the Lease has replaced: that pod may be gone
// without a word, and the stream only looks alive.
func (w *whereabouts) next() (string, bool) {
	switch {
	case w.found == w.inForce:
		return "", false
	case !w.streams:
		return w.found, true
	default:
		return w.found, w.holder != "" && w.source != "" && w.holder != w.source
	}
}

// where changes or reads what is known, for the goroutines that observe and
// that configure.
func (a *postgresAgent) where(do func(*whereabouts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do(&a.whereabouts)
}

// primaryAddress is where the settings look for the primary; mostly empty, for
// the Lease is only asked when the primary does not answer.
func (a *postgresAgent) primaryAddress() (address string) {
	a.where(func(w *whereabouts) { address = w.inForce })
	return address
}

// locatePrimary takes in where the Lease says that the primary is.
func (a *postgresAgent) locatePrimary(record leaseclient.Record) {
	if record.HolderPod != a.knownPrimary() {
		return
	}
	a.peers.Locate(record.HolderPod, record.Address)
	a.where(func(w *whereabouts) { w.lease(record.HolderUID, record.Address) })
}

// heardPrimary takes in an answer of the primary.
func (a *postgresAgent) heardPrimary(status agentapi.Status) {
	a.where(func(w *whereabouts) { w.answer(status.PodUID) })
}

// watchStream takes in what a look at the database showed, and has the settings
// changed where the primary is to be looked for elsewhere.
func (a *postgresAgent) watchStream(receiving bool) {
	var due bool
	a.where(func(w *whereabouts) {
		w.stream(receiving)
		_, due = w.next()
	})
	if !due {
		return
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}
