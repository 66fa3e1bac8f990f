// The JavaScript client's informer on the Jobs of a namespace, one line for each change. Ends when Job `last` is gone.

import * as k8s from '@kubernetes/client-node';

const namespace = process.argv[2];
const config = new k8s.KubeConfig();
config.loadFromDefault();
const batch = config.makeApiClient(k8s.BatchV1Api);
const informer = k8s.makeInformer(config, `/apis/batch/v1/namespaces/${namespace}/jobs`, () =>
    batch.listNamespacedJob({ namespace }),
);

const cached = () => informer.list(namespace).map((job) => job.metadata.name).sort().join(',');
for (const event of ['add', 'update', 'delete']) {
    informer.on(event, (job) => {
        console.log(event, job.metadata.name, `parallelism=${job.spec.parallelism}`, `cached=${cached()}`);
        if (event === 'delete' && job.metadata.name === 'last') {
            informer.stop();
        }
    });
}
informer.on('connect', () => console.log('connect'));
informer.on('error', (error) => {
    if (error && error.type !== 'aborted') {
        console.log('error', String(error));
    }
});
await informer.start();
