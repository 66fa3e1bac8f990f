// The JavaScript client's typed calls, one line of JSON for each outcome. Arguments: the namespace.

import * as k8s from '@kubernetes/client-node';

const namespace = process.argv[2];
const config = new k8s.KubeConfig();
config.loadFromDefault();
const batch = config.makeApiClient(k8s.BatchV1Api);
const core = config.makeApiClient(k8s.CoreV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const tell = (what, value) => console.log(JSON.stringify([what, value]));
const refused = async (call) => {
    try {
        await call;
        return 'accepted';
    } catch (error) {
        return error.code;
    }
};

const container = { name: 'main', image: 'busybox', command: ['true'] };
const job = (name, spec = {}) => ({
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name, namespace },
    spec: { template: { spec: { restartPolicy: 'Never', containers: [container] } }, ...spec },
});

const created = await batch.createNamespacedJob({ namespace, body: job('pi', { completions: 2 }) });
tell('created', [created.spec.backoffLimit, created.metadata.creationTimestamp instanceof Date]);
tell('again', await refused(batch.createNamespacedJob({ namespace, body: job('pi') })));
tell('invalid', await refused(batch.createNamespacedJob({ namespace, body: job('odd', { parallelism: -1 }) })));

const patched = await batch.patchNamespacedJob(
    { name: 'pi', namespace, body: { spec: { parallelism: 2 } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.StrategicMergePatch),
);
tell('patched', patched.spec.parallelism);
const applied = await batch.patchNamespacedJob(
    { name: 'applied', namespace, body: job('applied'), fieldManager: 'e2e', force: true },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply),
);
tell('applied', applied.metadata.managedFields.map((entry) => [entry.manager, entry.operation]));

const listed = await batch.listNamespacedJob({ namespace, limit: 1 });
const rest = await batch.listNamespacedJob({ namespace, limit: 5, _continue: listed.metadata._continue });
tell('listed', [...listed.items, ...rest.items].map((item) => item.metadata.name));

await core.createNamespacedSecret({
    namespace,
    body: { metadata: { name: 'password' }, stringData: { word: 'swordfish' } },
});
const secret = await core.readNamespacedSecret({ name: 'password', namespace });
tell('secret', Buffer.from(secret.data.word, 'base64').toString());

const generic = await objects.create({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'settings', namespace },
    data: { colour: 'blue' },
});
tell('generic', (await objects.read(generic)).data.colour);

const deleted = await batch.deleteNamespacedJob({ name: 'pi', namespace, propagationPolicy: 'Background' });
tell('deleted', deleted.status);
tell('gone', await refused(batch.readNamespacedJob({ name: 'pi', namespace })));
