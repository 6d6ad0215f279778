// Package anomaly says when a member's measurements are not as usual at this time of the day.
// It is pure: measurements and times come in, anomalies go out.
package anomaly
