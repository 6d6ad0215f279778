package loginsight

// Names of the classes that no text log reports, but the agent's own measurements.
const (
	VolumeFullInADay     = "VolumeFullInADay"
	VolumeFullInFourDays = "VolumeFullInFourDays"
	VolumeFullInTwoWeeks = "VolumeFullInTwoWeeks"
)

const fillRemedy = "Find out what grows, raise spec.storage.size, or set spec.storage.autoGrow.maxSize."

// memberClasses are what an agent measures of a member of every kind, the worst first.
var memberClasses = []*Class{
	{Name: VolumeFullInADay, Severity: Critical, Unit: Days, Meaning: "The volume is full within a day, if it fills as before.", Remedy: fillRemedy},
	{Name: VolumeFullInFourDays, Severity: Error, Unit: Days, Meaning: "The volume is full within four days, if it fills as before.", Remedy: fillRemedy},
	{Name: VolumeFullInTwoWeeks, Severity: Warning, Unit: Days, Meaning: "The volume is full within two weeks, if it fills as before.", Remedy: fillRemedy},
}
