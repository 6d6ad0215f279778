package loginsight

// Names of the classes that no text log reports, but the agent's own measurements.
const (
	VolumeFullInADay     = "VolumeFullInADay"
	VolumeFullInFourDays = "VolumeFullInFourDays"
	VolumeFullInTwoWeeks = "VolumeFullInTwoWeeks"
	UnusualErrors        = "UnusualErrors"
	UnusualWaits         = "UnusualWaits"
	UnusualLoad          = "UnusualLoad"
)

// IsAnomaly says whether a class counts measurements that are not as usual.
func IsAnomaly(class string) bool {
	return class == UnusualErrors || class == UnusualWaits || class == UnusualLoad
}

const fillRemedy = "Find out what grows, raise spec.storage.size, or set spec.storage.autoGrow.maxSize."

// memberClasses are what an agent measures of a member of every kind, the worst first.
var memberClasses = []*Class{
	{Name: VolumeFullInADay, Severity: Critical, Unit: Days, Meaning: "The volume is full within a day, if it fills as before.", Remedy: fillRemedy},
	{Name: VolumeFullInFourDays, Severity: Error, Unit: Days, Meaning: "The volume is full within four days, if it fills as before.", Remedy: fillRemedy},
	{Name: VolumeFullInTwoWeeks, Severity: Warning, Unit: Days, Meaning: "The volume is full within two weeks, if it fills as before.", Remedy: fillRemedy},
	{Name: UnusualErrors, Severity: Warning, Meaning: "Far more requests fail than is usual at this time of the day.", Remedy: "Read the classes of errors, and the text log. kubectl holdfast insights names the measurement and a probable cause."},
	{Name: UnusualWaits, Severity: Warning, Meaning: "Requests or replicas wait far longer than is usual at this time of the day.", Remedy: "Find what they wait for: long transactions, locks, the volume. kubectl holdfast insights names the measurement and a probable cause."},
	{Name: UnusualLoad, Severity: Warning, Meaning: "The database does far more, or far less, than is usual at this time of the day.", Remedy: "Find out which client changed. kubectl holdfast insights names the measurement and a probable cause."},
}
