# Every option of the guide's table.
mirror mm1 --consumer.config hdp1-consumer.properties --producer.config hdp1-producer.properties --whitelist my-topic --num.streams 4 --num.producers 2 --queue.size 2000
