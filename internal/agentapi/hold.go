package agentapi

// holdsBefore are the names that earlier agents report holds by.
var holdsBefore = map[Hold]Hold{"DataBehind": HoldDataStale, "DataAhead": HoldDataDiverged}

// UnmarshalText reads a hold as this agent or an earlier one reports it.
func (h *Hold) UnmarshalText(text []byte) error {
	*h = Hold(text)
	if now, renamed := holdsBefore[*h]; renamed {
		*h = now
	}
	return nil
}
