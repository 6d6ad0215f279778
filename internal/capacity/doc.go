// Package capacity says when a volume will be full, from samples of its use. It is pure:
// samples and times come in, a forecast goes out.
package capacity
