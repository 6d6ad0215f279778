package metrics

import "testing"

// What is requested after less WAL than requests a checkpoint by itself was asked for.
func TestAskedCheckpoints(t *testing.T) {
	const mib = 1 << 20
	// at, redo and least are in MiB.
	sample := func(requested, timed, at, redo float64) checkpointSample {
		return checkpointSample{requested: requested, timed: timed, at: at * mib, redo: redo * mib, least: 480 * mib}
	}
	for name, c := range map[string]struct {
		samples []checkpointSample
		want    float64
	}{
		"those before the first sample do not count":  {[]checkpointSample{sample(7, 3, 100, 50)}, 0},
		"a backup on an idle server":                  {[]checkpointSample{sample(7, 3, 100, 50), sample(8, 3, 101, 100)}, 1},
		"two in a minute":                             {[]checkpointSample{sample(7, 3, 100, 50), sample(9, 3, 101, 100)}, 2},
		"enough WAL since the last one":               {[]checkpointSample{sample(7, 3, 500, 50), sample(8, 3, 531, 530)}, 0},
		"one that was due":                            {[]checkpointSample{sample(7, 3, 100, 50), sample(7, 4, 101, 50)}, 0},
		"a backup while one that was due goes on":     {[]checkpointSample{sample(7, 3, 600, 50), sample(7, 4, 620, 50), sample(7, 4, 640, 50), sample(8, 4, 660, 650)}, 1},
		"WAL while one that was due goes on":          {[]checkpointSample{sample(7, 3, 600, 50), sample(7, 4, 620, 50), sample(7, 4, 900, 50), sample(8, 4, 1100, 610)}, 0},
		"a long one is reported when it is complete":  {[]checkpointSample{sample(7, 3, 400, 50), sample(7, 3, 900, 50), sample(8, 3, 1100, 530), sample(9, 3, 1200, 530)}, 0},
		"a server that begins its counters anew":      {[]checkpointSample{sample(7, 3, 100, 50), sample(1, 0, 101, 100)}, 0},
		"another timeline with less WAL":              {[]checkpointSample{sample(7, 3, 100, 50), sample(8, 3, 90, 80)}, 0},
		"a server whose segments are too large":       {[]checkpointSample{{at: 5}, {requested: 1, at: 6, least: -10}}, 0},
		"several backups, with one by WAL among them": {[]checkpointSample{sample(0, 0, 0, 0), sample(1, 0, 10, 9), sample(2, 0, 20, 19), sample(3, 0, 600, 590), sample(4, 0, 610, 609)}, 3},
	} {
		var asked AskedCheckpoints
		got := 0.0
		for _, s := range c.samples {
			got = asked.Count(s)
		}
		if got != c.want {
			t.Errorf("%s: %.0f were asked for, want %.0f", name, got, c.want)
		}
	}
	var asked AskedCheckpoints
	asked.Count(sample(7, 3, 100, 50))
	asked.Forget()
	if got := asked.Count(sample(9, 3, 101, 50)); got != 0 {
		t.Errorf("while another member led, %.0f were asked for", got)
	}
}
