package tune

import "time"

// Window is when a trial may begin, each day.
type Window struct {
	// Start and End since midnight in Zone. One that ends before it starts goes over
	// midnight.
	Start, End time.Duration
	Zone       *time.Location
}

// ParseWindow reads times of the day such as 22:00. One that cannot be read never opens.
func ParseWindow(start, end, zone string) *Window {
	w := &Window{Zone: time.UTC}
	from, err := time.Parse("15:04", start)
	if err != nil {
		return w
	}
	to, err := time.Parse("15:04", end)
	if err != nil {
		return w
	}
	where, err := time.LoadLocation(zone) // an empty name is UTC
	if err != nil {
		return w
	}
	day := func(t time.Time) time.Duration {
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	w.Start, w.End, w.Zone = day(from), day(to), where
	return w
}

// isOpen says whether a trial may begin. Without a window one always may.
func (w *Window) isOpen(now time.Time) bool {
	if w == nil {
		return true
	}
	hour, minute, _ := now.In(w.Zone).Clock()
	at := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	if w.Start <= w.End {
		return at >= w.Start && at < w.End
	}
	return at >= w.Start || at < w.End
}
