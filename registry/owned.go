package registry

import "strings"

// Owned tells whether a key lies where an API server keeps its objects by default: under
// /registry/ or, on OpenShift, /kubernetes.io/. It knows nothing of a prefix that was
// configured.
func Owned(key string) bool {
	for _, p := range knownPrefixes {
		if strings.HasPrefix(key, p+"/") {
			return true
		}
	}
	return false
}

// MayOwn tells whether a range of keys [key, end) can hold such a key; an end of "\x00" is
// that of the keyspace, an empty one stands for the key alone.
func MayOwn(key, end string) bool {
	if end == "" {
		return Owned(key)
	}
	for _, p := range knownPrefixes {
		if key < p+"0" && (end == "\x00" || end > p+"/") {
			return true
		}
	}
	return false
}
