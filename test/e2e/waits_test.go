//go:build e2e || soak

package e2e

import "time"

// How often something is polled.
const (
	// truthInterval is how often the truth of a status is checked.
	truthInterval = 100 * time.Millisecond
	// pollInterval is for what is waited for: often by a command in a container,
	// which takes a tenth of a second of a processor.
	pollInterval = 500 * time.Millisecond
)

// How long something may take before the test gives up. None of them is a
// promise: timings are measured elsewhere.
const (
	// readyTimeout is for a generation to be rolled out.
	readyTimeout = 4 * time.Minute
	// stalledTimeout is for bad input to be called so.
	stalledTimeout = 90 * time.Second
	// revertTimeout is for drift to be put back and reported.
	revertTimeout = 60 * time.Second
	// goneTimeout is for garbage collection, and for a namespace to end.
	goneTimeout = 3 * time.Minute
	// operatorTimeout is for the operator to be there, or to be gone.
	operatorTimeout = 2 * time.Minute
	// leaderTimeout is for a dead operator's Lease to run out, and another to act.
	leaderTimeout = 2 * time.Minute
	// crashTimeout is for a change through which the operator is killed at every
	// step.
	crashTimeout = 10 * time.Minute
	// nodeTimeout is for a node to stop or to come back, and to be repaired.
	nodeTimeout = 4 * time.Minute
	// podTimeout is for a client's pod to run.
	podTimeout = 90 * time.Second
	// serviceTimeout is for a Service to follow its pods, and for the nodes to
	// follow the Service.
	serviceTimeout = 60 * time.Second
	// execTimeout bounds one command in a container.
	execTimeout = 30 * time.Second
	// requestTimeout bounds one request to the API server.
	requestTimeout = 20 * time.Second
)

// Times in which nothing may happen: the observation itself, not a wait.
const (
	// settlePeriod lets what a change set off come to an end.
	settlePeriod = 15 * time.Second
	// contestPeriod is how long writes to a contested object are counted.
	contestPeriod = 20 * time.Second
)
