// Package metricfamily declares what agents offer to Prometheus. A family is declared by
// its whole name, so that a search for a name finds it. What the members of every kind
// offer is declared here, once.
package metricfamily

import "github.com/prometheus/client_golang/prometheus"

// Family is a metric that an agent offers.
type Family struct {
	Desc *prometheus.Desc
	Kind prometheus.ValueType
}

// Send takes one value of a family.
type Send func(f Family, value float64, labels ...string)

// What the members of every kind offer.
var (
	CertificateExpiry = NewGauge("holdfast_certificate_expiry_timestamp_seconds", "When the first of the member's certificates expires.")
	VolumeSize        = NewGauge("holdfast_volume_size_bytes", "Size of the member's volume.")
	VolumeFull        = NewGauge("holdfast_volume_full_forecast_seconds", "Seconds until the member's volume is full, by the trend of 14 days or by the last half hour to day, whichever is sooner; missing while no history shows that it fills.")
	Anomaly           = NewGauge("holdfast_anomaly", "1 while a measurement of the member is far from what is usual at this time of the day; missing otherwise.", "signal")
	VolumeFree        = NewGauge("holdfast_volume_available_bytes", "Free space on the member's volume.")
	CPUUsed           = NewGauge("holdfast_member_cpu_used_cores", "CPU that the member's container used in the last minute.")
	CPUNeeded         = NewGauge("holdfast_member_cpu_needed_cores", "CPU that sufficed in 95 % of the minutes; what is a day older counts half.")
	MemoryUsed        = NewGauge("holdfast_member_memory_used_bytes", "Memory that the member's container needs now: anonymous and shared memory, and files as far as they are read again and again. Page cache is not part of it.")
	MemoryNeeded      = NewGauge("holdfast_member_memory_needed_bytes", "Memory that the member's container needs at the peak of a day; what is a day older counts half.")
)

// What members offer that archive.
var (
	ArchiveLag       = NewGauge("holdfast_archive_lag_seconds", "How long the oldest WAL file or binlog has waited for the store; 0 if none waits.")
	ArchiveWaiting   = NewGauge("holdfast_archive_waiting_files", "WAL files or binlogs that wait for the store.")
	ArchiveGap       = NewGauge("holdfast_archive_gap", "Whether the archive has a gap, now or as last recorded.")
	ArchiveArchived  = NewCounter("holdfast_archive_archived_total", "WAL files or binlogs that the store has accepted.")
	ArchiveFailures  = NewCounter("holdfast_archive_failures_total", "Failed attempts to archive.")
	ArchiveDiscarded = NewCounter("holdfast_archive_discarded_total", "WAL segments or binlogs that were discarded because the budget was used up.")

	// ArchiveFamilies are all of them, in that order.
	ArchiveFamilies = []Family{ArchiveLag, ArchiveWaiting, ArchiveGap, ArchiveArchived, ArchiveFailures, ArchiveDiscarded}
)

// NewGauge returns a family of gauges.
func NewGauge(name, help string, labels ...string) Family {
	return New(prometheus.GaugeValue, name, help, labels...)
}

// NewCounter returns a family of counters.
func NewCounter(name, help string, labels ...string) Family {
	return New(prometheus.CounterValue, name, help, labels...)
}

// New returns a family of a kind.
func New(kind prometheus.ValueType, name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(name, help, labels, nil), kind}
}

// SendTo returns what sends values of families to a scrape.
func SendTo(scrape chan<- prometheus.Metric) Send {
	return func(f Family, value float64, labels ...string) {
		scrape <- prometheus.MustNewConstMetric(f.Desc, f.Kind, value, labels...)
	}
}

// OtherSeries is how many series a member has at most beside those of its collector: those of
// its process and of Go, and of what is appended: trends, use, and anomalies.
const OtherSeries = 70

// CountSent returns what sends as well, and counts the series.
func CountSent(send Send) (counts Send, sent *int) {
	sent = new(int)
	return func(f Family, value float64, labels ...string) {
		*sent++
		send(f, value, labels...)
	}, sent
}

// Describe announces families to a registry.
func Describe(to chan<- *prometheus.Desc, families ...Family) {
	for _, f := range families {
		to <- f.Desc
	}
}

// BoolValue returns 1 for true and 0 for false.
func BoolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
