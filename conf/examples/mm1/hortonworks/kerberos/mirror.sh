# With Kerberos. The KafkaClient section of the JAAS file is for Spark's JVM and for the Python side alike.
export JDK_JAVA_OPTIONS=-Djava.security.auth.login.config=kafka_mirrormaker_jaas.conf
mirror mm1 --consumer.config consumer.properties --producer.config target-cluster-producer.properties --whitelist my-topic --new.consumer
