package agentapi

// EnvTask holds a BackupTask as JSON, in the pods of Jobs.
const EnvTask = "HOLDFAST_TASK"

// Where the operator mounts what a Job's pod needs beside TLSDir, BinDir and
// RunDir.
const (
	// StoreDir holds the keys of the store, one file each.
	StoreDir = "/etc/holdfast/store"
	// BackupsDir is the mount point of a volume for backups.
	BackupsDir = "/backups"
	// ScratchDir is that of a volume for the copy while it is made, where one is.
	ScratchDir = "/scratch"
)

// ExitPermanent is the exit code of a Job's program when another try is in vain
// until a person fixes what is wrong.
const ExitPermanent = 42

// BackupTask is what a Job's pod is to do. It holds no secrets.
type BackupTask struct {
	// Namespace, Name and UID of the Backup.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Kind, Cluster and ClusterUID of what is backed up.
	Kind       string `json:"kind"`
	Cluster    string `json:"cluster"`
	ClusterUID string `json:"clusterUID"`
	// Store of the backup, and the prefix of its objects there.
	Store  BackupStore `json:"store"`
	Prefix string      `json:"prefix"`
	// Sources are the members to copy from, the best first. The next one is
	// asked where one cannot be copied.
	Sources []BackupSource `json:"sources,omitempty"`
	// AtLeast is the position that the copy must reach, in the form of a
	// result's endPosition; empty for none.
	AtLeast string `json:"atLeast,omitempty"`
	// SystemIdentifier of the only database system to copy; empty while unknown.
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// OtherNames are what members may call that database system instead; none where they have
	// one name for it.
	OtherNames []string `json:"otherNames,omitempty"`
	// Expected size of the copy in bytes, for progress; 0 while unknown.
	Expected int64 `json:"expected,omitempty"`
	// Bandwidth in bytes a second, of the data as the database has it; 0 for no
	// limit.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// Log that goes with what is removed; nil for none.
	Log *LogTask `json:"log,omitempty"`
}

// LogTask says which of an archived log stays.
type LogTask struct {
	// Prefix of the archive.
	Prefix string `json:"prefix"`
	// Kept are the positions where the backups begin that stay, in the form of a
	// result's startPosition.
	Kept []string `json:"kept"`
}

// CheckTask is what the pod is to do that tries whether a store can be used.
type CheckTask struct {
	// Store to try, and the prefix of the cluster's objects there.
	Store  BackupStore `json:"store"`
	Prefix string      `json:"prefix"`
}

// BackupSource is a member that can be copied.
type BackupSource struct {
	Name string `json:"name"`
	// Address where its database is reached, as host:port.
	Address string `json:"address"`
}

// BackupStore says where a store is.
type BackupStore struct {
	URL string `json:"url"`
	// Volume is the name of the volume that a directory is on.
	Volume string `json:"volume,omitempty"`
	// Size of that volume, in bytes, where no more than that is to be written to
	// it.
	Size      int64  `json:"size,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Region    string `json:"region,omitempty"`
	PathStyle bool   `json:"pathStyle,omitempty"`
}
