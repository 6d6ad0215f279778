package engine

import "k8s.io/apimachinery/pkg/api/resource"

// CopyPlan is how the data of a cluster is copied now.
type CopyPlan struct {
	// Waits says why it cannot be; empty when it can. Nothing else is set then.
	Waits string
	// Program is the one of "holdfast job backup" that copies.
	Program string
	// Image that holds the database's own programs.
	Image string
	// Sources are the members to copy from: the one that clients miss least
	// comes first.
	Sources []Source
	// AtLeast is the position that the copy must reach, in the form of a
	// backup's end; empty where the engine does not know it.
	AtLeast string
	// SystemIdentifier of the database system that is to be copied, and no
	// other; empty while unknown.
	SystemIdentifier string
	// OtherNames are what its members may call it instead.
	OtherNames []string
	// Secret with ca.crt for whom to trust, and with the certificate that the
	// database knows, tls.crt and tls.key, unless Certificate says where that is.
	Secret      string
	Certificate *CertificateKeys
	// Scratch is a volume for the copy while it is made; nil where none is needed.
	Scratch *ScratchVolume
	// Memory that the program needs at least, in bytes; 0 for what every Job has.
	Memory int64
	// Expected size of the copy in bytes; 0 while unknown.
	Expected int64
}

// CertificateKeys say where a certificate and its key are.
type CertificateKeys struct{ Secret, Certificate, Key string }

// ScratchVolume is made for a pod, and goes with it.
type ScratchVolume struct {
	Size resource.Quantity
	// Class of the volume; empty for the default.
	Class string
}

// Source is a member that can be copied, and where its database is reached, as
// host:port.
type Source struct{ Name, Address string }

// FirstSource is the name of the member that comes first.
func (c CopyPlan) FirstSource() string {
	if len(c.Sources) == 0 {
		return ""
	}
	return c.Sources[0].Name
}
