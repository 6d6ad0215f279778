package leaderview

import "net"

// location is at which address a replica's settings should look for the
// primary. An empty address is the pod's name, and so is the zero value.
type location struct {
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
func (w *location) recordLease(holder, address string) {
	if net.ParseIP(address) != nil {
		w.holder, w.found = holder, address
	}
}

// recordAnswer takes in who says that it is the primary: what the Lease said of
// another pod is old.
func (w *location) recordAnswer(uid string) {
	if w.answered = uid; w.holder != uid {
		w.holder, w.found = "", ""
	}
}

// recordStream takes in whether a stream is at work.
func (w *location) recordStream(works bool) {
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
func (w *location) beginRun() {
	w.inForce = w.found
	w.recordStream(false)
}

// nextAddress is the address to take up, if another than the one in force is to be.
// That interrupts a stream, so one that works is left alone, unless it comes
// from a pod that the holder of the Lease has replaced: that pod may be gone
// without a word, and the stream only looks alive.
func (w *location) nextAddress() (string, bool) {
	switch {
	case w.found == w.inForce:
		return "", false
	case !w.streams:
		return w.found, true
	default:
		return w.found, w.holder != "" && w.source != "" && w.holder != w.source
	}
}
