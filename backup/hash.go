package backup

import "context"

// hash compares etcd's own hash of the keyspace.
func (r *rehearsal) hash(ctx context.Context) error {
	resp, err := r.client.Status(ctx, r.client.Endpoints()[0])
	if err != nil {
		return err
	}
	if resp.Header.Revision != r.info.Revision {
		r.say(nil, "the restored etcd is at revision %d, the file at %d", resp.Header.Revision, r.info.Revision)
	}
	return nil
}
